"""Agent CLIs as runtimes: the contract of one, its program on the host, its process inside, and how it ended."""
