"""A kitty: what a group spends together, and who has paid for it."""
