"""Everything known about the `codex` command line program: its arguments, its output and how it ends."""
