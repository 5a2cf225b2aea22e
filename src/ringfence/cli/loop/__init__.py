"""The commands about loops."""
