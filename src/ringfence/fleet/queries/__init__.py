"""Reads a fleet's jobs, agents, schedules, workers and spend as the models of the API.

Both the HTTP API and the commands that run without a daemon read only through these functions.
"""
