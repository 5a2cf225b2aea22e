"""A standing crew: many agents, on schedules and triggers, as durable jobs."""
