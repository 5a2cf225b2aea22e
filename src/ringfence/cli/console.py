"""Where a person reads: a console of rich whose reader may leave."""

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the caller decide; rich would end the process, and with it whatever runs."""
        raise BrokenPipeError


def open_console(*, stderr: bool = False) -> Console:
    """A console on stdout, or on stderr; without colours where NO_COLOR is set or nobody looks."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
