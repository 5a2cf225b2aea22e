"""What the gate refused to processes inside, for whoever ran them: many programs do not say why they failed."""

from collections.abc import Iterator
from contextlib import contextmanager

_MOST_LINES = 20


class Refusals:
    """Gathers lines while commands run. A line counts for all that run at the time: nobody knows whose it was."""

    def __init__(self) -> None:
        self._watching: list[dict[str, None]] = []

    def add(self, line: str) -> None:
        """Take a line, for each command that runs."""
        for lines in self._watching:
            if len(lines) < _MOST_LINES:
                lines[line] = None

    @contextmanager
    def watched(self) -> Iterator[dict[str, None]]:
        """The lines until the context is left, each once, in order, at most 20."""
        lines: dict[str, None] = {}
        self._watching.append(lines)
        try:
            yield lines
        finally:
            self._watching[:] = [others for others in self._watching if others is not lines]
