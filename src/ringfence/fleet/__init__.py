"""A fleet: many agents whose runs are durable jobs, started by schedules, triggers and people."""
