"""The commands about the records of runs."""
