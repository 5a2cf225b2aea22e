"""What the crew remembers: jobs, their attempts, schedules and agents, in SQLite or PostgreSQL."""
