"""The workspace: its owner, its state before a run, and how changes are brought back."""
