"""A fleet: many agents, on schedules and triggers, as durable jobs."""
