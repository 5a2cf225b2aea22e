"""Reads a plan from a file that a person wrote, or from what an agent answered."""

import re
from pathlib import Path
from typing import Any

from ringfence.config.document import Document, read_regular_file
from ringfence.errors import ConfigurationError
from ringfence.loop.story import bounds
from ringfence.loop.story.complaint import Complaints
from ringfence.loop.story.dialect import LISTS
from ringfence.loop.story.interpretation import interpret
from ringfence.loop.story.json_text import parse_json
from ringfence.loop.story.model import Plan
from ringfence.loop.story.vetting import vet
from ringfence.loop.story.words import SURROGATE

_YAML = (".yaml", ".yml")
_FENCE = re.compile(r"[ \t]*```(json)?[ \t]*\r?")
"""A line that begins a block of code; one without `json` also ends one."""
_PROGRESS = ("passes", "status", "skipped", "notes")


def read_plan(file: Path) -> Plan:
    """Read a file of stories, in whichever dialect (docs/reference/stories.md). It is never written.

    Args:
        file: JSON or, by its suffix `.yaml` or `.yml`, YAML; at most `FILE_LIMIT_BYTES`.

    Raises:
        ConfigurationError: With everything that is wrong, each with file, line, column, story and field.
    """
    content = read_regular_file(file, follow_link=True, limit_bytes=bounds.FILE_LIMIT_BYTES)
    value, document = _parsed(content, file)
    complaints = Complaints(str(file), document)
    vet(value, complaints, most_values=2 * bounds.VALUES_LIMIT, most_chars=2 * bounds.FILE_LIMIT_BYTES)
    complaints.raise_any()
    return interpret(value, complaints, source=file)


def plan_from(document: Any, *, what: str) -> Plan:
    """Make a plan of what an agent answered, which cannot say that a story is done already.

    Args:
        document: JSON as text, also as the one block of code in other words, or its values.
        what: What it is, for messages: `the planner's answer`.

    Raises:
        ConfigurationError: With everything that is wrong.
    """
    complaints = Complaints(what)
    value = _from_text(document, what) if isinstance(document, str | bytes) else document
    vet(value, complaints, most_values=bounds.VALUES_LIMIT, most_chars=bounds.PLANNED_BYTES)
    complaints.raise_any()
    return interpret(_without_progress(value), complaints, source=None, most_stories=bounds.PLANNED_STORIES)


def plan_again(document: Any, *, source: Path | None) -> Plan:
    """Make a plan of the document of an earlier one (`Plan.document`), as it was kept in a database.

    Raises:
        ConfigurationError: It is not such a document.
    """
    complaints = Complaints(str(source) if source else "the plan that was kept")
    vet(document, complaints, most_values=2 * bounds.VALUES_LIMIT, most_chars=2 * bounds.FILE_LIMIT_BYTES)
    complaints.raise_any()
    return interpret(document, complaints, source=source)


def _parsed(content: bytes, file: Path) -> tuple[Any, Document]:
    if file.suffix.lower() in _YAML:
        from ringfence.config.yaml import parse_value

        return parse_value(content, file, most_values=bounds.VALUES_LIMIT)
    return parse_json(content, file)


def _from_text(text: str | bytes, what: str) -> Any:
    if len(text) > bounds.PLANNED_BYTES:
        raise ConfigurationError(f"{what} has {len(text)} characters, {bounds.PLANNED_BYTES} are the most")
    whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else SURROGATE.sub("\ufffd", text)
    blocks = [] if whole.lstrip().startswith(("{", "[")) else _blocks(whole)
    if len(blocks) > 1:
        raise ConfigurationError(
            f"{what} holds {len(blocks)} blocks of code; one of them, of JSON, is wanted"
        )
    try:
        value, _ = parse_json((blocks[0] if blocks else whole).encode(), Path(what))
    except ConfigurationError as exc:
        raise ConfigurationError(f"{what}, line {exc.line}, column {exc.column}: {exc.message}") from exc
    return value


def _blocks(text: str) -> list[str]:
    """What each block of code holds. Line by line: an expression for the whole looks for each block's end anew."""
    blocks: list[str] = []
    lines: list[str] | None = None
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if lines is None:
            lines = [] if fence else None
        elif fence and not fence[1]:
            blocks.append("".join(lines))
            lines = None
        else:
            lines.append(f"{line}\n")
    return blocks


def _without_progress(value: Any) -> Any:
    """The stories as nobody has begun them."""
    if isinstance(value, list):
        return [_begun_by_nobody(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_progress_below(key, below) for key, below in value.items()}


def _without_progress_below(key: str, value: Any) -> Any:
    if key == "waves" and isinstance(value, list):
        return [_without_progress(wave) for wave in value]
    return _without_progress(value) if key in LISTS and isinstance(value, list) else value


def _begun_by_nobody(story: Any) -> Any:
    return (
        {key: value for key, value in story.items() if key not in _PROGRESS}
        if isinstance(story, dict)
        else story
    )
