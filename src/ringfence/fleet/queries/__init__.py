"""What can be read of a fleet: its jobs, agents, schedules, workers and spend, as the models of the API.

The HTTP API and the commands that run without a daemon read through these functions and no others.
"""
