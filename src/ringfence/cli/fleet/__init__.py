"""The commands about the fleet: its daemon, agents, schedules, workers and jobs."""
