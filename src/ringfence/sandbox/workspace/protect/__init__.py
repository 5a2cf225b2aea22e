"""What an agent may not write, and what is reported or removed if it changed it."""
