"""Stores the fleet's jobs, attempts, schedules and agents in SQLite or PostgreSQL."""
