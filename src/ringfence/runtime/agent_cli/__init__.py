"""Agent CLIs as runtimes: their contract, program on the host, process inside, and exit status."""
