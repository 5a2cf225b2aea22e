"""A command of the user's on the user's own terminal."""

from ringfence.job.terminal.running import run_on_terminal

__all__ = ["run_on_terminal"]
