"""What a crew is told: its agents, and when they work."""
