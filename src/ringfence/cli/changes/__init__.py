"""The commands about a run's changes and about checkpoints."""
