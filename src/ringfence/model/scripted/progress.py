"""The progress of conversations in scripts: which turn is due, and which script a conversation has.

A server's own script is one line of turns for all clients. In the other scripts as many turns are over as the model has
replied in the conversation of the request, so conversations can be resumed and forked, and only the faults that have
happened are counted.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.model.scripted.dialect import ParsedRequest
from ringfence.model.scripted.loader import parse_embedded
from ringfence.model.scripted.script import Fault, Script, Turn

_SHOWN_CHARS: Final = 100


@frozen
class Due:
    """The answer that is due to the next request."""

    turn: Turn
    turn_index: int
    fault: Fault | None
    stem: str
    """A part of the ids in the reply, different for each reply of a conversation."""


class Progress(Protocol):
    """The progress in one script. A turn is over when its reply was sent completely; until then it is repeated."""

    @property
    def script(self) -> Script:
        """The script."""

    def due(self) -> Due | None:
        """Return what is due; None after the last turn."""

    def fault_happened(self, due: Due) -> None:
        """Note that the due fault happened."""

    def reply_sent(self) -> None:
        """Note that the turn's reply was sent completely."""


class LineProgress:
    """The progress of all clients together: each request takes the next turn of the script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.turn_index = 0
        """The number of turns that are over."""
        self._faults_done = 0

    def due(self) -> Due | None:
        """Return what is due; None after the last turn."""
        if self.turn_index >= len(self.script.turns):
            return None
        turn = self.script.turns[self.turn_index]
        faults = turn.faults
        fault = faults[self._faults_done] if self._faults_done < len(faults) else None
        return Due(turn, self.turn_index, fault, f"{self.turn_index + 1:04d}")

    def fault_happened(self, due: Due) -> None:
        """Note that the due fault happened; the last error of a turn without a reply ends the turn."""
        self._faults_done += 1
        if not due.turn.has_reply and self._faults_done >= len(due.turn.faults):
            self.reply_sent()

    def reply_sent(self) -> None:
        """Note that the turn's reply was sent completely."""
        self.turn_index += 1
        self._faults_done = 0


@frozen
class Position:
    """The position of a conversation, at which its faults are counted."""

    conversation: str
    """The client's name of the conversation, which may be empty."""
    digest: str
    """The hash of what distinguishes conversations of the same name."""
    replies: int
    """The number of replies since the conversation began."""


class ConversationProgress:
    """The progress of one conversation in a script.

    Args:
        script: A script with turns.
        faults: The number of faults that have happened at each position.
        position: The position of the request.
        replies_since: The number of replies since the script was given.
    """

    def __init__(
        self, script: Script, faults: Counter[Position], position: Position, *, replies_since: int
    ) -> None:
        self.script = script
        self._faults = faults
        self._position = position
        self._replies_since = replies_since

    def due(self) -> Due | None:
        """Return the next fault of the turns since the last reply, then the reply; None after the last turn."""
        turns, passed = [], 0
        for index, turn in enumerate(self.script.turns):
            if passed == self._replies_since:
                turns.append((index, turn))
            passed += turn.has_reply
        faults = [(index, turn, fault) for index, turn in turns for fault in turn.faults]
        steps = [*faults, *((index, turn, None) for index, turn in turns if turn.has_reply)]
        done = min(self._faults[self._position], len(faults))
        if done == len(steps):
            return None
        index, turn, fault = steps[done]
        return Due(turn, index, fault, f"{self._position.digest[:8]}_{self._position.replies + 1:04d}")

    def fault_happened(self, due: Due) -> None:  # noqa: ARG002  # the contract's
        """Note that the due fault happened."""
        self._faults[self._position] += 1

    def reply_sent(self) -> None:
        """Do nothing: the client's next request holds the reply."""


def _digest(text: str) -> str:
    """Return the SHA-256 of any text, lone surrogates included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- scripts in prompts

_OPEN: Final = "<scripted-model>"
_CLOSE: Final = "</scripted-model>"
_NAMED: Final = re.compile(r'<scripted-model name="([^"<>]{1,100})" */>')
_PATH: Final = Path("<prompt>")
_LIMIT_CHARS: Final = 1024**2


def in_prompt(script: Script | str) -> str:
    """Return the mark that carries `script` anywhere in a prompt.

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
    """The name of a script of the server; None: `text` is the script."""
    text: str = ""


class CarriedScripts:
    """Finds the scripts in prompts, and counts the faults that have happened in each conversation.

    Args:
        named: The scripts that a prompt may name.
    """

    def __init__(self, named: Mapping[str, Script]) -> None:
        self._named = dict(named)
        self._faults: Counter[Position] = Counter()

    def find(self, request: ParsedRequest, conversation: str) -> ConversationProgress | None:
        """Return the progress in the last script that the user's messages carry; None if they carry none.

        Args:
            request: The request.
            conversation: The client's name of the conversation; it distinguishes equal prompts.

        Raises:
            ConfigurationError: The text is not a script, or there is no script of that name.
        """
        mark, replies, replies_at_mark = None, 0, 0
        for utterance, replies in request.with_replies():
            here = _mark_in(utterance.text) if utterance.by == "user" else None
            if here is not None:
                mark, replies_at_mark = here, replies
        if mark is None:
            return None
        position = Position(conversation, _digest(f"{mark.name}\0{mark.text}"), replies)
        since = replies - replies_at_mark
        return ConversationProgress(self._script(mark), self._faults, position, replies_since=since)

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


@lru_cache
def _carried_script(text: str) -> Script:
    return _without_cases(parse_embedded(text, path=_PATH))


def _without_cases(script: Script) -> Script:
    if script.cases:
        raise ConfigurationError("cases have no meaning in a prompt; give turns", file=script.source.path)
    return script


def _mark_in(text: str) -> _Mark | None:
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, end) if end >= 0 else -1
    named = list(_NAMED.finditer(text))
    if named and named[-1].start() > start:
        return _Mark(named[-1][1])
    return _Mark(None, text[start + len(_OPEN) : end]) if start >= 0 else None


# --- cases


class Cases:
    """The cases of a script, each for the conversations with a certain beginning.

    Args:
        script: A script with cases.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._scripts = tuple(script.of_case(index) for index in range(len(script.cases)))
        self._faults: Counter[Position] = Counter()

    def find(self, request: ParsedRequest, conversation: str) -> ConversationProgress:
        """Return the progress in the first case that fits.

        The beginning of a conversation is everything that the user says before the model first replies, since some
        clients put messages of their own before the prompt.

        Args:
            request: The request.
            conversation: The client's name of the conversation; it distinguishes equal beginnings.

        Raises:
            ConfigurationError: No case fits.
        """
        first, replies = [], 0
        for utterance, replies in request.with_replies():
            if not replies and utterance.by == "user":
                first.append(utterance.text)
        beginning = "\n".join(first)
        for case, script in zip(self._script.cases, self._scripts, strict=True):
            if all(text in beginning for text in case.when):
                position = Position(conversation, _digest(beginning), replies)
                return ConversationProgress(script, self._faults, position, replies_since=replies)
        start = beginning if len(beginning) <= _SHOWN_CHARS else f"{beginning[:_SHOWN_CHARS]}..."
        raise ConfigurationError(
            f"none of the {len(self._scripts)} cases fits a conversation that begins with {start!r}; "
            "add one, or a last one without 'when'",
            file=self._script.source.path,
        )
