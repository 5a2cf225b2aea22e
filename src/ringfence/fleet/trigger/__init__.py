"""What begins a job besides the clock: webhooks, changed files, work that others leave."""
