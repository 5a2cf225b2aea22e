"""The workspace: whose it is, what it was before a run, and how changes come back out."""
