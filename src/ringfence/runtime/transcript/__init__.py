"""Reads sessions that the claude and codex CLIs wrote as events of ringfence."""
