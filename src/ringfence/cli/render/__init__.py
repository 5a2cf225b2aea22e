"""Renders results for people: one renderer per view."""
