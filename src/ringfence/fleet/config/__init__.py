"""What a fleet is told: its agents, and when they work."""
