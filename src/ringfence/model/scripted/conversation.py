"""The place in a script by the conversation in the request, for servers that many ask at once.

As many turns are over as the model has spoken in it. So conversations may be resumed and forked, and nothing is to be
kept but how many faults were dealt out.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from ringfence.frozen import frozen
from ringfence.model.scripted.asked import Utterance
from ringfence.model.scripted.script import Fault, Script, Turn

_PLACES_KEPT: Final = 65_536


@frozen
class Due:
    """What the next request gets."""

    turn: Turn
    turn_index: int
    fault: Fault | None
    stem: str
    """Part of the ids in the reply; another for each reply of a conversation."""


class Progress(Protocol):
    """Which turn is due. A turn is over when its reply went out whole; until then it is given again."""

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


class Place(NamedTuple):
    """Where faults are counted."""

    conversation: str
    """What the client calls it; may be empty."""
    digest: str
    """Of what tells equal names of conversations apart."""
    replies: int
    """Since the conversation began."""


def digest(text: str) -> str:
    """In hexadecimal; of any text, lone surrogates too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def with_replies(said: Iterable[Utterance]) -> Iterator[tuple[Utterance, int]]:
    """Each piece of a conversation, and how often the model has spoken up to and with it."""
    replies, was_model = 0, False
    for utterance in said:
        is_model = utterance.by == "model"
        replies += is_model and not was_model
        was_model = is_model
        yield utterance, replies


class FaultsDone:
    """How many faults were dealt out at each place; the latest places are remembered."""

    def __init__(self) -> None:
        self._done: OrderedDict[Place, int] = OrderedDict()

    def at(self, place: Place) -> int:
        """How many were."""
        return self._done.get(place, 0)

    def add(self, place: Place) -> None:
        """One more was."""
        self._done[place] = self.at(place) + 1
        self._done.move_to_end(place)
        while len(self._done) > _PLACES_KEPT:
            self._done.popitem(last=False)


class ConversationProgress:
    """The place in a script that one conversation has reached.

    Args:
        script: With turns.
        faults_done: Of the server.
        place: Where the faults of this request are counted.
        replies_since: How often the model spoke since the script began to count.
    """

    def __init__(self, script: Script, faults_done: FaultsDone, place: Place, *, replies_since: int) -> None:
        self.script = script
        self._faults_done = faults_done
        self._place = place
        self._replies_since = replies_since

    def due(self) -> Due | None:
        """Faults of the turns since the last reply, then the reply; None after the last turn."""
        turns = list(self._turns_due())
        faults: list[tuple[int, Turn, Fault | None]] = [
            (index, turn, fault) for index, turn in turns for fault in turn.faults
        ]
        replies: list[tuple[int, Turn, Fault | None]] = [
            (index, turn, None) for index, turn in turns if turn.has_reply
        ]
        steps = [*faults, *replies]
        done = self._faults_done.at(self._place)
        if done >= len(faults) and not replies:
            return None
        index, turn, fault = steps[min(done, len(faults))]
        return Due(turn, index, fault, f"{self._place.digest[:8]}_{self._place.replies + 1:04d}")

    def _turns_due(self) -> Iterator[tuple[int, Turn]]:
        """The turns between the last reply and the next, with that."""
        passed = 0
        for index, turn in enumerate(self.script.turns):
            if passed == self._replies_since:
                yield index, turn
            passed += turn.has_reply
            if passed > self._replies_since:
                return

    def fault_happened(self, due: Due) -> None:  # noqa: ARG002  # the contract's
        """The due fault was dealt out."""
        self._faults_done.add(self._place)

    def reply_sent(self) -> None:
        """Nothing to note: the client tells by what it sends next."""
