"""The words in which each role is asked: a text of the package, or one of the user's."""

import hashlib
import re
from importlib import resources
from pathlib import Path

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.loop.role.blocks import PREAMBLE
from ringfence.loop.role.model import Role

_PLACE = re.compile(r"\{\{\s*(\w*)\s*\}\}")
_PLACES = ("briefing", "answer")
MOST_BYTES = 1 << 18


@frozen
class Template:
    """The words, and which version of them."""

    text: str
    version: str

    def filled(self, *, briefing: str, answer: str) -> str:
        """The words with what belongs in their places. What is put in is not looked at again."""
        values = {"briefing": briefing, "answer": answer}
        return _PLACE.sub(lambda match: values[match[1]], self.text)


def template_for(role: Role, file: Path | None = None) -> Template:
    """The template of a role.

    Args:
        role: Which.
        file: The user's own, in place of the package's.

    Raises:
        ConfigurationError: The file cannot be read, or lacks a place that must be in it, or has one that is not known.
    """
    text = (
        _own(file)
        if file
        else resources.files(f"{__package__}.prompts").joinpath(f"{role}.md").read_text("utf-8")
    )
    version = hashlib.sha256(f"{PREAMBLE}\0{text}".encode()).hexdigest()[:12]
    return Template(text.strip() + "\n", version)


def _own(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(
            f"the prompt cannot be read: {exc}; give a text file in UTF-8", file=file
        ) from exc
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"the prompt is longer than {MOST_BYTES} bytes; shorten it", file=file)
    for match in _PLACE.finditer(text):
        if match[1] not in _PLACES:
            line = text.count("\n", 0, match.start()) + 1
            known = ", ".join(f"{{{{{name}}}}}" for name in _PLACES)
            raise ConfigurationError(
                f"the prompt has a place {match[0]!r}; known are {known}", file=file, line=line
            )
    for name in _PLACES:
        count = sum(match[1] == name for match in _PLACE.finditer(text))
        if count != 1:
            raise ConfigurationError(
                f"the prompt has {{{{{name}}}}} {count} times; put it in once", file=file
            )
    return text
