"""Writes a copy of a plan with its progress, in the dialect that it came in; never over the file it came from.

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

_YAML = (".yaml", ".yml")
_NOTE_CHARS = 2000
_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*", re.ASCII)
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "null", "yes", "no", "y", "n", "on", "off"})
"""In one version of YAML or another."""
_STATUS = {"passed": "done", "skipped": "skipped", "blocked": "blocked"}
_BY_STATUS: frozenset[Dialect] = frozenset({"pipeline", "waves"})
_WITHOUT_NOTES: frozenset[Dialect] = frozenset({"features"})
"""Tools that read these files expect only `passes` to change."""


def export(plan: Plan, file: Path, states: Mapping[str, StoryEnd]) -> None:
    """Write a copy of a plan with progress. All that stood in the source stays, in its order.

    `passes` is set, or `status` in the dialects that have it; `notes` is added to, except in a list of features.

    Args:
        plan: The plan.
        file: Where to; YAML by the suffixes `.yaml` and `.yml`, JSON by all others. A file there is replaced
            as a whole.
        states: How stories ended, by id; those that are not there stay as they are.

    Raises:
        UsageError: The file is the plan's own source, by whatever path or link, or is no regular file.
        InfrastructureFault: It cannot be written.
    """
    _refuse_source(plan, file)
    document = exported(plan, states)
    text = yaml_text(document) if file.suffix.lower() in _YAML else _json(document)
    _replace(file, text)


def exported(plan: Plan, states: Mapping[str, StoryEnd]) -> Any:
    """Return the values of a plan's file, with progress."""
    document = copy.deepcopy(document_of(plan))
    for story, entry in zip(plan.stories, list(entries(document, plan.dialect)), strict=True):
        if (end := states.get(story.id)) is not None:
            _mark(entry.values, end, plan.dialect)  # type: ignore[arg-type]  # our own copy, of plain dicts
    return document


def document_of(plan: Plan) -> Any:
    """Return the values of a plan's file as they were read; for a plan that came from none, those to write."""
    if plan.document is not None:
        return plan.document
    about = {"title": plan.title, "description": plan.description, "context": list(plan.context)}
    return {
        **{key: value for key, value in about.items() if value},
        **plan.extra,
        "stories": [_written(story) for story in plan.stories],
    }


def _written(story: Story) -> dict[str, Any]:
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
    by_status = dialect in _BY_STATUS
    if not by_status or "passes" in values:
        values["passes"] = end.outcome == "passed"
    if by_status or "status" in values:
        values["status"] = _STATUS[end.outcome]
    if "skipped" in values:
        values["skipped"] = end.outcome == "skipped"
    if end.note and dialect not in _WITHOUT_NOTES:
        values["notes"] = _noted(values.get("notes"), printable(end.note, _NOTE_CHARS))


def _noted(before: Any, note: str) -> Any:
    if isinstance(before, list):
        return before if note in before else [*before, note]
    if not isinstance(before, str) or not before.strip():
        return note
    return before if note in before else f"{before}\n{note}"


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def yaml_text(value: Any) -> str:
    """Return a mapping or list as YAML for people, of which every character comes back."""
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
    writer.width = 1 << 30  # else it folds long lines
    writer.indent(mapping=2, sequence=4, offset=2)
    written = io.StringIO()
    writer.dump(styled(value), written)
    return written.getvalue()


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS_WITH_A_MEANING


def _is_block(text: str) -> bool:
    """Whether it has several lines that are plain enough to stand as they are."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and not text.startswith((" ", "\n"))
        and bool(lines[-1])
        and all(line.isprintable() and (not line or line.strip()) for line in lines)
    )


def _refuse_source(plan: Plan, file: Path) -> None:
    advice = "the file that stories come from is never written; give another one"
    if plan.source is not None:
        with suppress(OSError):
            if file.resolve() == plan.source.resolve() or file.samefile(plan.source):
                raise UsageError(f"{str(file)!r} is where the stories came from; {advice}")
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise UsageError(f"{str(file)!r} is there and no regular file; give another one")


def _replace(file: Path, text: str) -> None:
    try:
        replace_file(file, SURROGATE.sub("\ufffd", text).encode(), mode=0o666)
    except OSError as exc:
        raise InfrastructureFault(
            f"{str(file)!r} cannot be written: {exc.strerror}; {next_step(exc)}"
        ) from exc
