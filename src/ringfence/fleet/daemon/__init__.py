"""The daemon: the one process that owns a fleet's state, fires schedules, admits jobs, and serves the API."""
