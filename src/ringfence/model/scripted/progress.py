"""Which turn of a script is due: the place of a conversation in it, and where the script of a conversation comes from.

A server's own script is one line of turns for all who ask. Elsewhere as many turns are over as the model has spoken in
the conversation of the request: so conversations may be resumed and forked, and only the faults that were dealt out are
kept.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.model.scripted.dialect import ParsedRequest, Utterance
from ringfence.model.scripted.loader import parse_embedded
from ringfence.model.scripted.script import Fault, Script, Turn

_SHOWN_CHARS: Final = 100
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


def with_replies(utterances: Iterable[Utterance]) -> Iterator[tuple[Utterance, int]]:
    """Each piece of a conversation, and how often the model has spoken up to and with it."""
    replies, was_model = 0, False
    for utterance in utterances:
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


# --- scripts in prompts

_OPEN: Final = "<scripted-model>"
_CLOSE: Final = "</scripted-model>"
_NAMED: Final = re.compile(r'<scripted-model name="([^"<>]{1,100})" */>')
_PATH: Final = Path("<prompt>")
_LIMIT_CHARS: Final = 1024**2
_PARSED_KEPT: Final = 256


def in_prompt(script: Script | str) -> str:
    """The mark that carries `script`, to be put anywhere into a prompt.

    Args:
        script: A script, or the name of one that the server was started with.

    Raises:
        ValueError: The name has characters that a name cannot have, or the script has cases.
    """
    if isinstance(script, str):
        mark = f'<scripted-model name="{script}"/>'
        if not _NAMED.fullmatch(mark):
            raise ValueError(
                f"{script!r} cannot be the name of a script; take up to 100 without quotes and <>"
            )
        return mark
    if script.cases:
        raise ValueError("a script with cases is for a server; what a prompt carries has turns")
    text = script.model_dump_json(exclude_defaults=True).replace("<", "\\u003c")
    return f"{_OPEN}{text}{_CLOSE}"


@frozen
class _Mark:
    name: str | None
    text: str
    replies_since: int
    replies: int
    """Since the conversation began."""


class CarriedScripts:
    """Finds scripts in prompts and knows how far their faults are dealt out.

    Args:
        named: Scripts that a prompt may name.
    """

    def __init__(self, named: Mapping[str, Script]) -> None:
        self._named = dict(named)
        self._faults_done = FaultsDone()

    def find(self, request: ParsedRequest, conversation: str) -> ConversationProgress | None:
        """The script that a request carries, at its place; None if it carries none.

        Args:
            request: What is asked.
            conversation: What the client calls it; may be empty. Tells apart equal prompts.

        Raises:
            ConfigurationError: What it carries is not a script, or there is none of that name.
        """
        mark = _last_mark(request)
        if mark is None:
            return None
        script = self._script(mark)
        place = Place(conversation, digest(f"{mark.name}\0{mark.text}"), mark.replies)
        return ConversationProgress(script, self._faults_done, place, replies_since=mark.replies_since)

    def _script(self, mark: _Mark) -> Script:
        if mark.name is not None:
            if mark.name not in self._named:
                known = ", ".join(sorted(self._named)) or "none"
                raise ConfigurationError(f"there is no script {mark.name!r}; known are: {known}", file=_PATH)
            return _without_cases(self._named[mark.name])
        if len(mark.text) > _LIMIT_CHARS:
            raise ConfigurationError(
                f"the script has {len(mark.text)} characters, {_LIMIT_CHARS} are allowed", file=_PATH
            )
        return _carried_script(mark.text)


@lru_cache(maxsize=_PARSED_KEPT)
def _carried_script(text: str) -> Script:
    return _without_cases(parse_embedded(text, path=_PATH))


def _without_cases(script: Script) -> Script:
    if script.cases:
        raise ConfigurationError("cases have no meaning in a prompt; give turns", file=script.path)
    return script


def _last_mark(request: ParsedRequest) -> _Mark | None:
    """The last one in what the user said, and how often the model spoke since and in all."""
    replies, at_mark = 0, 0
    found: tuple[str | None, str] | None = None
    for utterance, replies in with_replies(request.utterances):
        here = None if utterance.by == "model" else _mark_in(utterance.text)
        if here is not None:
            found, at_mark = here, replies
    if found is None:
        return None
    return _Mark(found[0], found[1], replies - at_mark, replies)


def _mark_in(text: str) -> tuple[str | None, str] | None:
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, end) if end >= 0 else -1
    named = list(_NAMED.finditer(text))
    if named and named[-1].start() > start:
        return named[-1][1], ""
    return (None, text[start + len(_OPEN) : end]) if start >= 0 else None


# --- cases


class Cases:
    """The cases of a script, each for the conversations that begin as it says.

    Args:
        script: With cases.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._scripts = tuple(script.of_case(index) for index in range(len(script.cases)))
        self._faults_done = FaultsDone()

    def find(self, request: ParsedRequest, conversation: str) -> ConversationProgress:
        """The first case that fits, at its place.

        Args:
            request: What is asked.
            conversation: What the client calls it; may be empty. Tells apart equal beginnings.

        Raises:
            ConfigurationError: None fits.
        """
        beginning, replies = _beginning(request)
        for case, script in zip(self._script.cases, self._scripts, strict=True):
            if all(text in beginning for text in case.when):
                place = Place(conversation, digest(beginning), replies)
                return ConversationProgress(script, self._faults_done, place, replies_since=replies)
        start = beginning if len(beginning) <= _SHOWN_CHARS else f"{beginning[:_SHOWN_CHARS]}..."
        raise ConfigurationError(
            f"none of the {len(self._scripts)} cases fits a conversation that begins with {start!r}; "
            "add one, or a last one without 'when'",
            file=self._script.path,
        )


def _beginning(request: ParsedRequest) -> tuple[str, int]:
    """What the user said before the model first spoke, and how often the model has spoken since.

    Not the first message alone: some clients put messages of their own before the prompt.
    """
    first: list[str] = []
    replies = 0
    for utterance, replies in with_replies(request.utterances):
        if not replies:
            first.append(utterance.text)
    return "\n".join(first), replies
