"""Converts fleets of herdctl. A key that is not converted unchanged has a note; none is dropped silently."""
