"""Writes a copy of a plan with its progress, in the dialect of its source, but never over the source itself.

The writer of YAML is imported on use.
"""

import copy
import io
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringfence.errors import InfrastructureFault, UsageError, next_step
from ringfence.filesystem import replace_file
from ringfence.loop.story.dialect import entries
from ringfence.loop.story.model import Dialect, Plan, Story, StoryEnd
from ringfence.loop.story.words import SURROGATE, printable

_YAML_SUFFIXES = (".yaml", ".yml")
_NOTE_CHARS = 2000
_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*", re.ASCII)
_YAML_KEYWORDS = frozenset({"true", "false", "null", "yes", "no", "y", "n", "on", "off"})
"""Words that some version of YAML reads as a boolean or null."""
_STATUS_BY_OUTCOME = {"passed": "done", "skipped": "skipped", "blocked": "blocked"}
_STATUS_DIALECTS: frozenset[Dialect] = frozenset({"pipeline", "waves"})
"""Dialects that keep a story's progress in `status`."""
_PASSES_ONLY_DIALECTS: frozenset[Dialect] = frozenset({"features"})
"""Tools that read these files expect only `passes` to change."""


def export(plan: Plan, file: Path, states: Mapping[str, StoryEnd]) -> None:
    """Write a copy of a plan with progress. All other values of the source are kept, in their order.

    `passes` is set, or `status` in the dialects that keep progress there; `status` and `skipped` are also set in a story
    that has them, and a note is added to `notes`. In a list of features only `passes` is set.

    Args:
        plan: The plan.
        file: The file to write, in YAML if its suffix is `.yaml` or `.yml`, otherwise in JSON. An existing file is
            replaced atomically.
        states: How stories ended, by id; other stories do not change.

    Raises:
        UsageError: The file is the plan's own source, under any path or link, or is not a regular file.
        InfrastructureFault: The file cannot be written.
    """
    _refuse_source(plan, file)
    document = document_with_progress(plan, states)
    text = yaml_text(document) if file.suffix.lower() in _YAML_SUFFIXES else _json(document)
    _replace(file, text)


def document_with_progress(plan: Plan, states: Mapping[str, StoryEnd]) -> Any:
    """Return the content of a plan's file with progress."""
    document = copy.deepcopy(document_of(plan))
    for story, entry in zip(plan.stories, list(entries(document, plan.dialect)), strict=True):
        if (end := states.get(story.id)) is not None:
            _mark(entry.values, end, plan.dialect)  # type: ignore[arg-type]  # our own copy, of plain dicts
    return document


def document_of(plan: Plan) -> Any:
    """Return the content of a plan's file as it was read, or the content to write for a plan without a file."""
    if plan.document is not None:
        return plan.document
    head = {"title": plan.title, "description": plan.description, "context": list(plan.context)}
    return {
        **{key: value for key, value in head.items() if value},
        **plan.extra,
        "stories": [_story_values(story) for story in plan.stories],
    }


def _story_values(story: Story) -> dict[str, Any]:
    optional: dict[str, Any] = {
        "depends_on": list(story.depends_on),
        "files": list(story.files),
        "check": story.check,
        "question": story.question,
    }
    return {
        "id": story.id,
        "title": story.title,
        "description": story.description,
        "acceptance_criteria": list(story.criteria),
        "priority": story.priority,
        **{key: value for key, value in optional.items() if value},
        "passes": story.is_done,
        **story.extra,
    }


def _mark(values: dict[str, Any], end: StoryEnd, dialect: Dialect) -> None:
    if dialect in _PASSES_ONLY_DIALECTS:
        values["passes"] = end.outcome == "passed"
        return
    has_status = dialect in _STATUS_DIALECTS
    if not has_status or "passes" in values:
        values["passes"] = end.outcome == "passed"
    if has_status or "status" in values:
        values["status"] = _STATUS_BY_OUTCOME[end.outcome]
    if "skipped" in values:
        values["skipped"] = end.outcome == "skipped"
    if end.note:
        values["notes"] = _add_note(values.get("notes"), printable(end.note, _NOTE_CHARS))


def _add_note(before: Any, note: str) -> Any:
    if isinstance(before, list):
        return before if note in before else [*before, note]
    if not isinstance(before, str) or not before.strip():
        return note
    has_note = f"\n{note}\n" in f"\n{before}\n"
    return before if has_note else f"{before}\n{note}"


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def yaml_text(value: Any) -> str:
    """Return a mapping or list as readable YAML, from which every character is read back unchanged."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    def styled(value: Any) -> Any:
        if isinstance(value, dict):
            return {styled(key): styled(below) for key, below in value.items()}
        if isinstance(value, list):
            return [styled(below) for below in value]
        if not isinstance(value, str) or _is_plain(value):
            return value
        return LiteralScalarString(value) if _is_block(value) else DoubleQuotedScalarString(value)

    writer = YAML()
    writer.width = 1 << 30  # otherwise long lines are folded
    writer.indent(mapping=2, sequence=4, offset=2)
    written = io.StringIO()
    writer.dump(styled(value), written)
    return written.getvalue()


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _YAML_KEYWORDS


def _is_block(text: str) -> bool:
    """Whether a text has several lines that a YAML block scalar keeps unchanged."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and not text.startswith((" ", "\n"))
        and bool(lines[-1])
        and all(line.isprintable() and (not line or line.strip()) for line in lines)
    )


def _refuse_source(plan: Plan, file: Path) -> None:
    advice = "the stories' own file is never written; give another one"
    if plan.source is not None:
        with suppress(OSError):
            if file.resolve() == plan.source.resolve() or file.samefile(plan.source):
                raise UsageError(f"{str(file)!r} is the file that the stories were read from; {advice}")
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise UsageError(f"{str(file)!r} is there and no regular file; give another one")


def _replace(file: Path, text: str) -> None:
    try:
        replace_file(file, SURROGATE.sub("\ufffd", text).encode(), mode=0o666)
    except OSError as exc:
        raise InfrastructureFault(
            f"{str(file)!r} cannot be written: {exc.strerror}; {next_step(exc)}"
        ) from exc
