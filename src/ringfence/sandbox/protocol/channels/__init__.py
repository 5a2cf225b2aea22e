"""Connections of processes inside, carried over the one stream: listened for, or asked for, by the host only."""
