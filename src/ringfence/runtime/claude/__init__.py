"""Everything known about the `claude` command line program: its arguments, its output and how it ends."""
