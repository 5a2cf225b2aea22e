"""Snapshots of a workspace, kept in a store outside of it."""
