"""Reads a fleet's jobs, agents, schedules, workers and spend. Nothing here knows of HTTP."""
