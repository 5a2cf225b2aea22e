"""The configuration of a fleet: its files, agents and schedules."""
