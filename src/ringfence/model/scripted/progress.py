"""Which turn is due. A turn is over when its reply went out whole; until then it is given again."""

from dataclasses import dataclass

from ringfence.model.scripted.script import Fault, Script, Turn


@dataclass(frozen=True)
class Due:
    """What the next request gets."""

    turn: Turn
    turn_index: int
    fault: Fault | None


class Progress:
    """The place in a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._turn = 0
        self._faults_done = 0

    @property
    def turn_index(self) -> int:
        """How many turns are over."""
        return self._turn

    def due(self) -> Due | None:
        """What is due; None after the last turn."""
        if self._turn >= len(self._script.turns):
            return None
        turn = self._script.turns[self._turn]
        faults = turn.faults
        fault = faults[self._faults_done] if self._faults_done < len(faults) else None
        return Due(turn, self._turn, fault)

    def fault_happened(self, due: Due) -> None:
        """The due fault was dealt out; an error without a reply behind it ends the turn with its last."""
        self._faults_done += 1
        if not due.turn.has_reply and self._faults_done >= len(due.turn.faults):
            self.reply_sent()

    def reply_sent(self) -> None:
        """The turn's reply went out whole."""
        self._turn += 1
        self._faults_done = 0
