"""Converts fleets of herdctl. Each key that is not converted unchanged gets a note; none is dropped silently."""
