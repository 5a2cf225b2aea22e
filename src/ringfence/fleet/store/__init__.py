"""What the fleet remembers: jobs, their attempts, schedules and agents, in SQLite or PostgreSQL."""
