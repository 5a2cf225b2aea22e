"""Scripts that travel in the prompt, so that one server answers many conversations at once.

Which turn is due follows from the conversation itself: as many are over as the model has spoken since the mark.
So conversations may be resumed and forked, and nothing is to be kept but how many faults were dealt out.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.model.scripted.asked import Asked
from ringfence.model.scripted.loading import parse_embedded
from ringfence.model.scripted.progress import Due
from ringfence.model.scripted.script import Fault, Script, Turn

_OPEN: Final = "<scripted-model>"
_CLOSE: Final = "</scripted-model>"
_NAMED: Final = re.compile(r'<scripted-model name="([^"<>]{1,100})" */>')
_PATH: Final = Path("<prompt>")
_LIMIT_CHARS: Final = 1024**2
_PARSED_KEPT: Final = 256
_PLACES_KEPT: Final = 65_536

_Place = tuple[str, str, int]


def in_prompt(script: Script | str) -> str:
    """The mark that carries `script`, to be put anywhere into a prompt.

    Args:
        script: A script, or the name of one that the server was started with.

    Raises:
        ValueError: The name has characters that a name cannot have.
    """
    if isinstance(script, str):
        mark = f'<scripted-model name="{script}"/>'
        if not _NAMED.fullmatch(mark):
            raise ValueError(
                f"{script!r} cannot be the name of a script; take up to 100 without quotes and <>"
            )
        return mark
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
        self._parsed: OrderedDict[str, Script] = OrderedDict()
        self._faults_done: OrderedDict[_Place, int] = OrderedDict()

    def find(self, asked: Asked, conversation: str) -> "CarriedProgress | None":
        """The script that a request carries, at its place; None if it carries none.

        Args:
            asked: The request.
            conversation: What the client calls it; may be empty. Tells apart equal prompts.

        Raises:
            ConfigurationError: What it carries is not a script, or there is none of that name.
        """
        mark = _last_mark(asked)
        if mark is None:
            return None
        script = self._script(mark)
        digest = hashlib.sha256(f"{mark.name}\0{mark.text}".encode("utf-8", "surrogatepass")).hexdigest()
        return CarriedProgress(script, self, mark, (conversation, digest, mark.replies))

    def _script(self, mark: _Mark) -> Script:
        if mark.name is not None:
            if mark.name not in self._named:
                known = ", ".join(sorted(self._named)) or "none"
                raise ConfigurationError(f"there is no script {mark.name!r}; known are: {known}", file=_PATH)
            return self._named[mark.name]
        if len(mark.text) > _LIMIT_CHARS:
            raise ConfigurationError(
                f"the script has {len(mark.text)} characters, {_LIMIT_CHARS} are allowed", file=_PATH
            )
        if mark.text not in self._parsed:
            self._parsed[mark.text] = parse_embedded(mark.text, path=_PATH)
            _bound(self._parsed, _PARSED_KEPT)
        return self._parsed[mark.text]

    def faults_done(self, place: _Place) -> int:
        """How many were dealt out there."""
        return self._faults_done.get(place, 0)

    def fault_happened(self, place: _Place) -> None:
        """One more was."""
        self._faults_done[place] = self.faults_done(place) + 1
        self._faults_done.move_to_end(place)
        _bound(self._faults_done, _PLACES_KEPT)


class CarriedProgress:
    """The place in a script that came with the conversation."""

    def __init__(self, script: Script, scripts: CarriedScripts, mark: _Mark, place: _Place) -> None:
        self.script = script
        self._scripts = scripts
        self._mark = mark
        self._place = place

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
        done = self._scripts.faults_done(self._place)
        if done >= len(faults) and not replies:
            return None
        index, turn, fault = steps[min(done, len(faults))]
        return Due(turn, index, fault, f"{self._place[1][:8]}_{self._mark.replies + 1:04d}")

    def _turns_due(self) -> Iterator[tuple[int, Turn]]:
        """The turns between the last reply and the next, with that."""
        passed = 0
        for index, turn in enumerate(self.script.turns):
            if passed == self._mark.replies_since:
                yield index, turn
            passed += turn.has_reply
            if passed > self._mark.replies_since:
                return

    def fault_happened(self, due: Due) -> None:  # noqa: ARG002  # the contract's
        """The due fault was dealt out."""
        self._scripts.fault_happened(self._place)

    def reply_sent(self) -> None:
        """Nothing to note: the client tells by what it sends next."""


def _last_mark(asked: Asked) -> _Mark | None:
    """The last one in what the user said, and how often the model spoke since and in all."""
    replies, at_mark = 0, 0
    found: tuple[str | None, str] | None = None
    was_model = False
    for utterance in asked.said:
        is_model = utterance.by == "model"
        replies += is_model and not was_model
        was_model = is_model
        here = None if is_model else _mark_in(utterance.text)
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


def _bound(kept: OrderedDict[str, Script] | OrderedDict[_Place, int], count: int) -> None:
    while len(kept) > count:
        kept.popitem(last=False)
