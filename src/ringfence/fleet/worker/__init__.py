"""What runs jobs: a process that takes them from the engine."""
