"""What the agents' own command line programs do, read from outside."""
