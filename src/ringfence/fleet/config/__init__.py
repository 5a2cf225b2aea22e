"""Loads and checks the configuration of a fleet: its files, agents and schedules."""
