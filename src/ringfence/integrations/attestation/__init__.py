"""Statements about runs that others can verify: signed, anchored, attached to commits."""
