"""What is being done in a run at present, as its events tell it. Nothing is escaped here."""

import time

from ringfence.cli.outcomes import CALL, call_lines
from ringfence.cli.told import speech
from ringfence.events import (
    Event,
    JobEnded,
    ModelReplied,
    ModelRetried,
    TextStreamed,
    ThinkingStreamed,
    ToolCalled,
    ToolReturned,
    VerificationEnded,
    VerificationStarted,
)
from ringfence.frozen import frozen

_CHECK = "the check"
_SPEECH_CHARS = 2_000


@frozen
class Running:
    """Something that runs inside."""

    what: str
    since: float
    """By the monotonic clock."""


class Doing:
    """Follows what begins and ends inside, and what was said last."""

    def __init__(self) -> None:
        self.running: dict[str, Running] = {}
        """In the order of their beginning."""
        self._speech = ""
        self._last = ""

    @property
    def words(self) -> str:
        """The last words, in one line: a call while it runs, else what was said or done last."""
        if self.running:
            return next(iter(self.running.values())).what
        return self._last

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
                self._hear(event)

    def _begin(self, key: str, what: str) -> None:
        self.running[key] = Running(what, time.monotonic())
        self._last, self._speech = what, ""

    def _hear(self, event: Event) -> None:
        match event:
            case TextStreamed() | ThinkingStreamed():
                self._speech = (self._speech + event.text)[-_SPEECH_CHARS:]
                self._last = _last_line(self._speech) or self._last
            case ModelReplied():
                self._speech = ""
                said = [line for text, _ in speech(event) if (line := _last_line(text))]
                self._last = said[-1] if said else self._last
            case ModelRetried():
                self._last = f"model: {event.reason}; again in {event.wait_s:.1f} s"
            case _:
                pass


def _title(event: ToolCalled) -> str:
    """What is done, in one line; a reason stands before it."""
    lines = [line for line, style in call_lines(event) if style == CALL]
    return lines[0].strip()


def _last_line(text: str) -> str:
    """The last line that has a word in it; braces that end an answer have none."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return next((line for line in lines if any(map(str.isalnum, line))), "")
