"""The commands about standing sandboxes and the pool."""
