"""Makes a plan of the values of a file, or of what an agent answered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence.loop.story import bounds
from ringfence.loop.story.complaint import Complaints
from ringfence.loop.story.dialect import LISTS, Entry, check_shape, dialect_of, entries
from ringfence.loop.story.fields import Fields
from ringfence.loop.story.model import CheckKind, Plan, Story
from ringfence.loop.story.order import problems
from ringfence.loop.story.story_fields import NEEDS, StoryReader
from ringfence.loop.story.words import is_plain, one_line, quoted

_COMMANDS: Mapping[str, CheckKind] = {
    "test_command": "test",
    "typecheck_command": "type",
    "lint_command": "lint",
}
_TITLE = ("title", "name", "project")
_SLIPS = (_TITLE, ("description", "summary"), ("context",), *((key,) for key in _COMMANDS))
_UNTITLED = "Untitled"


def interpret(
    document: Any, complaints: Complaints, *, source: Path | None, most_stories: int = bounds.STORIES_LIMIT
) -> Plan:
    """Make a plan of a document.

    Args:
        document: Plain values, vetted.
        complaints: Where what is wrong is noted, and raised.
        source: The file, if there is one.
        most_stories: How many it may have.

    Raises:
        ConfigurationError: With all that is wrong.
    """
    dialect = dialect_of(document, complaints)
    check_shape(document, dialect, complaints, most=most_stories)
    written = list(entries(document, dialect))
    reader = StoryReader(dialect, complaints)
    stories = [reader.read(entry, number) for number, entry in enumerate(written, start=1)]
    if dialect == "waves":
        stories = _after_the_wave_before(stories, written)
    plan = _plan(document if isinstance(document, dict) else {}, complaints)
    _note_problems(stories, written, complaints)
    complaints.raise_any()
    return replace(
        plan,
        stories=tuple(stories),
        dialect=dialect,
        source=source,
        notes=(*plan.notes, *reader.notes),
        document=document,
    )


def _plan(document: Mapping[str, Any], complaints: Complaints) -> Plan:
    """What stands beside the stories."""
    fields = Fields(document, (), complaints)
    title = fields.text(fields.first(_TITLE), most_chars=bounds.TEXT_CHARS)
    description = fields.text(fields.first(("description", "summary")), most_chars=bounds.TEXT_CHARS)
    for key in LISTS:
        fields.key((key,))
    checks = _checks(fields)
    context = _context(fields, checks, complaints)
    fields.slips(_SLIPS)
    return Plan(
        title=one_line(title or description or _UNTITLED, bounds.TITLE_CHARS),
        description=description or "",
        context=context,
        extra=fields.extra(),
        checks=checks,
    )


def _checks(fields: Fields) -> dict[CheckKind, str]:
    found: dict[CheckKind, str] = {}
    for key, kind in _COMMANDS.items():
        command = fields.text(key, most_chars=bounds.COMMAND_CHARS)
        if command is not None and not is_plain(command, lines=True):
            fields.wrong(key, "it holds control characters; remove them")
        elif command is not None:
            found[kind] = command
    return found


def _context(fields: Fields, checks: dict[CheckKind, str], complaints: Complaints) -> tuple[str, ...]:
    """What every role should know: texts, a text, or a mapping, of which commands are taken for checks."""
    value = fields.peek("context")
    if isinstance(value, dict):
        fields.key(("context",))
        below = Fields(value, ("context",), complaints, "context.")
        checks.update(_checks(below))
        return tuple(
            f"{key}: {one_line(str(said), bounds.CRITERION_CHARS)}"
            for key, said in list(below.extra().items())[: bounds.CONTEXT_LIMIT]
            if isinstance(said, str | int | float)
        )
    if isinstance(value, str):
        text = fields.text("context", most_chars=bounds.TEXT_CHARS)
        return (text,) if text else ()
    found = fields.texts("context", most_items=bounds.CONTEXT_LIMIT, most_chars=bounds.CRITERION_CHARS)
    return found or ()


def _after_the_wave_before(stories: Sequence[Story], written: Sequence[Entry]) -> list[Story]:
    waves: dict[int | None, list[str]] = {}
    for story, entry in zip(stories, written, strict=True):
        waves.setdefault(entry.wave, []).append(story.id)
    before = dict(zip(list(waves)[1:], waves.values(), strict=False))
    return [
        replace(story, depends_on=tuple(dict.fromkeys([*story.depends_on, *before.get(entry.wave, ())])))
        for story, entry in zip(stories, written, strict=True)
    ]


def _note_problems(stories: Sequence[Story], written: Sequence[Entry], complaints: Complaints) -> None:
    for problem in problems(stories):
        entry = written[problem.place]
        fields = Fields(entry.values, entry.path, complaints, f"story {quoted(stories[problem.place].id)}: ")
        names = NEEDS if problem.field == "depends_on" else ("id",)
        key = next((name for name in names if name in entry.values), names[0])
        said = entry.values.get(key)
        items = [str(item).strip() for item in said] if isinstance(said, list) else []
        index = items.index(problem.value) if problem.value in items else None
        fields.wrong(key, problem.message, index=index)
