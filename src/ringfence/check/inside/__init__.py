"""What is sent into a sandbox to report there, test by test. The standard library and the runner itself only."""
