"""Scripts that travel in the prompt, so that one server answers many conversations at once."""

import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.model.scripted.asked import Asked
from ringfence.model.scripted.conversation import (
    ConversationProgress,
    FaultsDone,
    Place,
    digest,
    with_replies,
)
from ringfence.model.scripted.loading import parse_embedded
from ringfence.model.scripted.script import Script

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
        self._parsed: OrderedDict[str, Script] = OrderedDict()
        self._faults_done = FaultsDone()

    def find(self, asked: Asked, conversation: str) -> ConversationProgress | None:
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
        if mark.text not in self._parsed:
            self._parsed[mark.text] = _without_cases(parse_embedded(mark.text, path=_PATH))
            if len(self._parsed) > _PARSED_KEPT:
                self._parsed.popitem(last=False)
        return self._parsed[mark.text]


def _without_cases(script: Script) -> Script:
    if script.cases:
        raise ConfigurationError("cases have no meaning in a prompt; give turns", file=script.path)
    return script


def _last_mark(asked: Asked) -> _Mark | None:
    """The last one in what the user said, and how often the model spoke since and in all."""
    replies, at_mark = 0, 0
    found: tuple[str | None, str] | None = None
    for utterance, replies in with_replies(asked.said):
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
