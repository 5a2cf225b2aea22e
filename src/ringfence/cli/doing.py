"""What is being done in a run at present, as its events tell it. Nothing is escaped here."""

import time

from ringfence.cli.outcomes import CALL, call_lines
from ringfence.events import Event, JobEnded, ToolCalled, ToolReturned, VerificationEnded, VerificationStarted
from ringfence.frozen import frozen

_CHECK = "the check"


@frozen
class Running:
    """Something that runs inside."""

    what: str
    since: float
    """By the monotonic clock."""


class Doing:
    """Follows what begins and ends inside."""

    def __init__(self) -> None:
        self.running: dict[str, Running] = {}
        """In the order of their beginning."""

    def take(self, event: Event) -> None:
        """Note an event."""
        match event:
            case ToolCalled():
                self._begin(event.call_id, _title(event))
            case ToolReturned():
                self.running.pop(event.call_id, None)
            case VerificationStarted():
                self._begin(_CHECK, event.command)
            case VerificationEnded():
                self.running.pop(_CHECK, None)
            case JobEnded():
                self.running.clear()
            case _:
                pass

    def _begin(self, key: str, what: str) -> None:
        self.running[key] = Running(what, time.monotonic())


def _title(event: ToolCalled) -> str:
    """What is done, in one line; a reason stands before it."""
    lines = [line for line, style in call_lines(event) if style == CALL]
    return lines[0].strip()
