"""What the project promises about speed and size, measured. `python -m benchmarks` runs all and writes the table."""
