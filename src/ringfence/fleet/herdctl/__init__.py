"""Fleets of herdctl, read as they are and said in our own words. What cannot be said so is named, never dropped."""
