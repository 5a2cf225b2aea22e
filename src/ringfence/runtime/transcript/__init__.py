"""Sessions that the claude and codex CLIs wrote, read as events of ours: listed, shown and followed."""
