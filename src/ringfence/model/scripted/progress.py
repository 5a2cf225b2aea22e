"""Which turn is due. A turn is over when its reply went out whole; until then it is given again."""

from typing import Protocol

from ringfence.frozen import frozen
from ringfence.model.scripted.script import Fault, Script, Turn


@frozen
class Due:
    """What the next request gets."""

    turn: Turn
    turn_index: int
    fault: Fault | None
    stem: str
    """Part of the ids in the reply; another for each reply of a conversation."""


class Progress(Protocol):
    """The place in a script."""

    @property
    def script(self) -> Script:
        """The script."""

    def due(self) -> Due | None:
        """What is due; None after the last turn."""

    def fault_happened(self, due: Due) -> None:
        """The due fault was dealt out."""

    def reply_sent(self) -> None:
        """The turn's reply went out whole."""


class LineProgress:
    """One place for all who ask: the script is a line of turns, and each request takes the next."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._turn = 0
        self._faults_done = 0

    @property
    def turn_index(self) -> int:
        """How many turns are over."""
        return self._turn

    def due(self) -> Due | None:
        """What is due; None after the last turn."""
        if self._turn >= len(self.script.turns):
            return None
        turn = self.script.turns[self._turn]
        faults = turn.faults
        fault = faults[self._faults_done] if self._faults_done < len(faults) else None
        return Due(turn, self._turn, fault, f"{self._turn + 1:04d}")

    def fault_happened(self, due: Due) -> None:
        """The due fault was dealt out; an error without a reply behind it ends the turn with its last."""
        self._faults_done += 1
        if not due.turn.has_reply and self._faults_done >= len(due.turn.faults):
            self.reply_sent()

    def reply_sent(self) -> None:
        """The turn's reply went out whole."""
        self._turn += 1
        self._faults_done = 0
