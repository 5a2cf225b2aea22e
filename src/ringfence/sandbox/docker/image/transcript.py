"""What a build writes, as it comes: whole lines for whoever watches, the last ones, and the images it made."""

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_LINE_CHARS = 500
_KEPT_LINES = 40
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MADE = re.compile(r"^ ?-{2,3}> (?P<id>[0-9a-f]{8,64})$")
"""Docker's own builder and Podman's name each image on the way like this."""
_CACHED = re.compile(r"^ ?-{2,3}> Using cache")
_STEP = re.compile(r"^STEP \d+(/\d+)?\s?: (?P<instruction>.+)$", re.IGNORECASE)

Tell = Callable[[str], None]
"""Is given each line. What it says comes from outside: escape it before a terminal shows it."""


class Transcript:
    """Takes the messages of one build."""

    def __init__(self, tell: Tell) -> None:
        self.step = ""
        """The instruction it is at."""
        self.made: list[str] = []
        """Images that this build made on its way, in order; not those that were there."""
        self._tell = tell
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._partial = ""
        self._was_there = False

    @property
    def last_lines(self) -> str:
        """The end of what was written."""
        return "\n".join([*self._last, *([self._partial] if self._partial else [])])

    def take(self, message: Mapping[str, Any]) -> None:
        """Take a message of the engine's stream (Docker Engine API, POST /build)."""
        if isinstance(message.get("stream"), str):
            self.write(message["stream"])
        elif isinstance(message.get("status"), str) and not message.get("progressDetail"):
            name = f"{message['id']}: " if message.get("id") else ""
            self.write(f"{name}{message['status']}\n")

    def write(self, text: str) -> None:
        """Take text as it comes: lines may arrive in parts, and a line may be drawn again and again."""
        *lines, rest = (self._partial + text).split("\n")
        for line in lines:
            self._line(line)
        self._partial = rest[-_LINE_CHARS:]

    def _line(self, line: str) -> None:
        drawn = _COLOUR.sub("", line.rstrip("\r").rpartition("\r")[2])[:_LINE_CHARS].rstrip()
        if not drawn:
            return
        self._note(drawn)
        self._last.append(drawn)
        self._tell(drawn)

    def _note(self, line: str) -> None:
        if step := _STEP.match(line):
            self.step = step["instruction"]
            self._was_there = self.step.upper().startswith("FROM ")
        elif _CACHED.match(line):
            self._was_there = True
        elif made := _MADE.match(line):
            if not self._was_there:
                self.made.append(made["id"])
            self._was_there = False
