"""What works a loop's stories through, durably."""
