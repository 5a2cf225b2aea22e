"""Reads a plan from a user's file, from an agent's answer, or from a loop's stored copy."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from ringfence.loop.story.dialect import (
    BLOCKED_STATUSES,
    DIALECT_BY_KEY,
    DONE_STATUSES,
    Entry,
    check_shape,
    dialect_of,
    entries,
)
from ringfence.loop.story.fields import ErrorCollector, Fields
from ringfence.loop.story.model import CheckKind, Dialect, Plan, Story, slug
from ringfence.loop.story.parse import FILE_LIMIT_BYTES, VALUES_LIMIT, check_values, parse_file
from ringfence.loop.story.schedule import problems
from ringfence.loop.story.words import is_plain, is_printable, one_line, quoted

STORIES_LIMIT = 1000
PLANNED_STORIES = 50
"""Limit for a plan that an agent wrote."""
_PLANNED_CHARS = 256 * 1024
_ID_CHARS = 200
_TITLE_CHARS = 200
"""Limit for a title that is derived from other text; an explicit one may have `_LINE_CHARS`."""
_LINE_CHARS = 1000
_TEXT_CHARS = 65_536
_CRITERION_CHARS = 20_000
_CRITERIA_LIMIT = 200
_FILES_LIMIT = 500
_PATH_CHARS = 1024
_COMMAND_CHARS = 8192
_CONTEXT_LIMIT = 100
_COMMANDS: Mapping[str, CheckKind] = {
    "test_command": "test",
    "typecheck_command": "type",
    "lint_command": "lint",
}
_PLAN_TITLE = ("title", "name", "project")
_PLAN_FIELDS = (_PLAN_TITLE, ("description", "summary"), ("context",), *((key,) for key in _COMMANDS))
_UNTITLED = "Untitled"

_TITLE = ("title", "name")
_CRITERIA = ("acceptance_criteria", "acceptance", "acceptanceCriteria", "criteria")
_NEEDS = ("depends_on", "dependsOn", "dependencies")
_CHECK = ("check", "test_command")
_FIELDS = (
    ("id",), _TITLE, ("description",), _CRITERIA, ("priority",), _NEEDS, ("files",), _CHECK, ("passes",), ("status",),
    ("question",),
)  # fmt: skip
"""All fields of a story, each with its names."""
_DIALECT_FIELDS: Mapping[Dialect, tuple[tuple[str, ...], ...]] = {
    "features": (("steps",),),
    "waves": (("prompt",), ("summary",)),
}
_PROGRESS = ("passes", "status", "skipped", "notes")


def read_plan(file: Path) -> Plan:
    """Read a file of stories in any dialect (docs/reference/stories.md). It is never written.

    Args:
        file: JSON or, by its suffix `.yaml` or `.yml`, YAML; at most 1 MiB.

    Raises:
        ConfigurationError: The file has errors; the message lists all, each with file, line, column, story and field.
    """
    value, document = parse_file(file)
    complaints = ErrorCollector(str(file), document)
    _check_values(value, complaints, values_limit=2 * VALUES_LIMIT, chars_limit=2 * FILE_LIMIT_BYTES)
    return _interpret(value, complaints, source=file)


def plan_from(values: Any, *, what: str) -> Plan:
    """Make a plan from an agent's answer, which cannot mark a story as done.

    Args:
        values: The answer.
        what: Name of the input for messages: `the planner's answer`.

    Raises:
        ConfigurationError: The answer has errors; the message lists all.
    """
    complaints = ErrorCollector(what)
    _check_values(values, complaints, values_limit=VALUES_LIMIT, chars_limit=_PLANNED_CHARS)
    return _interpret(_without_progress(values), complaints, source=None, stories_limit=PLANNED_STORIES)


def plan_again(document: Any, *, source: Path | None) -> Plan:
    """Make a plan from the stored document of an earlier one (`Plan.document`).

    Raises:
        ConfigurationError: It is not such a document.
    """
    return _interpret(document, ErrorCollector(str(source or "the plan that was kept")), source=source)


def _check_values(value: Any, complaints: ErrorCollector, *, values_limit: int, chars_limit: int) -> None:
    unfit = check_values(value, values_limit=values_limit, chars_limit=chars_limit)
    if unfit is not None:
        complaints.add(*unfit)
    complaints.raise_any()


def _without_progress(value: Any) -> Any:
    """Return values without the keys for a story's progress."""
    if isinstance(value, dict):
        return {key: _without_progress(below) for key, below in value.items() if key not in _PROGRESS}
    return [_without_progress(below) for below in value] if isinstance(value, list) else value


def _interpret(
    document: Any, complaints: ErrorCollector, *, source: Path | None, stories_limit: int = STORIES_LIMIT
) -> Plan:
    """Make a plan from plain, bounded values."""
    dialect = dialect_of(document, complaints)
    check_shape(document, dialect, complaints, stories_limit=stories_limit)
    written = list(entries(document, dialect))
    reader = _StoryReader(dialect, complaints)
    stories = [reader.read(entry, number) for number, entry in enumerate(written, start=1)]
    if dialect == "waves":
        stories = _after_the_wave_before(stories, written)
    fields = Fields(document if isinstance(document, dict) else {}, (), complaints)
    title = fields.text(fields.first(_PLAN_TITLE), max_chars=_TEXT_CHARS)
    description = fields.text(fields.first(("description", "summary")), max_chars=_TEXT_CHARS)
    for key in DIALECT_BY_KEY:
        fields.key((key,))
    checks = _checks(fields)
    context = _context(fields, checks, complaints)
    fields.check_misspellings(_PLAN_FIELDS)
    _add_problems(stories, written, complaints)
    complaints.raise_any()
    return Plan(
        title=one_line(title or description or _UNTITLED, _TITLE_CHARS),
        description=description or "",
        context=context,
        stories=tuple(stories),
        dialect=dialect,
        source=source,
        extra=fields.extra(),
        notes=tuple(reader.notes),
        checks=checks,
        document=document,
    )


def _checks(fields: Fields) -> dict[CheckKind, str]:
    commands = {kind: _command(fields, key) for key, kind in _COMMANDS.items()}
    return {kind: command for kind, command in commands.items() if command is not None}


def _command(fields: Fields, *names: str) -> str | None:
    key = fields.key(names)
    value = fields.peek(key) if key is not None else None
    if key is not None and not isinstance(value, str):
        fields.wrong(key, f"{quoted(value)} is no text; write a shell command, like {quoted('make test')}")
        return None
    found = fields.text(*names, max_chars=_COMMAND_CHARS)
    if found is None or is_plain(found, lines=True):
        return found
    fields.wrong(fields.key(names) or names[0], "it holds control characters; remove them")
    return None


def _context(fields: Fields, checks: dict[CheckKind, str], complaints: ErrorCollector) -> tuple[str, ...]:
    """Return the context for every role: texts, a text, or a mapping, whose commands are used as checks."""
    value = fields.peek("context")
    if isinstance(value, dict):
        fields.key(("context",))
        below = Fields(value, ("context",), complaints, "context.")
        checks.update(_checks(below))
        return tuple(
            f"{key}: {one_line(str(said), _CRITERION_CHARS)}"
            for key, said in list(below.extra().items())[:_CONTEXT_LIMIT]
            if isinstance(said, str | int | float)
        )
    if isinstance(value, str):
        text = fields.text("context", max_chars=_TEXT_CHARS)
        return (text,) if text else ()
    found = fields.texts("context", max_items=_CONTEXT_LIMIT, max_chars=_CRITERION_CHARS)
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


def _add_problems(stories: Sequence[Story], written: Sequence[Entry], complaints: ErrorCollector) -> None:
    for problem in problems(stories):
        entry = written[problem.index]
        fields = Fields(entry.values, entry.path, complaints, f"story {quoted(stories[problem.index].id)}: ")
        names = _NEEDS if problem.field == "depends_on" else ("id",)
        key = next((name for name in names if name in entry.values), names[0])
        said = entry.values.get(key)
        items = [str(item).strip() for item in said] if isinstance(said, list) else []
        index = items.index(problem.value) if problem.value in items else None
        fields.wrong(key, problem.message, index=index)


class _StoryReader:
    """Reads the stories of one document.

    Args:
        dialect: The document's dialect.
        complaints: Collects the errors.
    """

    def __init__(self, dialect: Dialect, complaints: ErrorCollector) -> None:
        self.notes: list[str] = []
        """Notes about values that are interpreted differently from how they are written."""
        self._dialect = dialect
        self._complaints = complaints
        self._made = Counter[str]()

    def read(self, entry: Entry, number: int) -> Story:
        """Return a story. Errors are collected, and wrong values replaced by harmless ones.

        Args:
            entry: The story's mapping in the file.
            number: The story's number, from 1.
        """
        fields = Fields(entry.values, entry.path, self._complaints, f"story {number}: ")
        story_id = self._id(fields)
        if story_id is None:
            story_id = f"story {number}"
        else:
            fields.of = f"story {quoted(story_id)}: "
        title, description, summary = self._words(fields, story_id)
        priority = fields.number("priority")
        needs = fields.texts(*_NEEDS, max_items=STORIES_LIMIT, max_chars=_ID_CHARS)
        story = Story(
            id=story_id,
            title=title,
            description=description,
            criteria=self._criteria(fields, story_id, summary or title),
            priority=float(number) if priority is None else priority,
            depends_on=tuple(dict.fromkeys(needs or ())),
            files=_files(fields),
            check=_command(fields, *_CHECK),
            is_done=_is_done(fields),
            question=_question(fields),
            extra=fields.extra(),
        )
        fields.check_misspellings((*_FIELDS, *_DIALECT_FIELDS.get(self._dialect, ())))
        if entry.values.get("skipped") is True and not story.is_done:
            self.notes.append(f"story {quoted(story_id)} was skipped before; it is worked on again")
        return story

    def _id(self, fields: Fields) -> str | None:
        if self._dialect == "features" and not fields.has("id"):
            return self._made_id(fields)
        found = fields.text("id", max_chars=_ID_CHARS)
        if found is not None and not is_printable(found):
            fields.wrong("id", f"{quoted(found)} holds characters that do not show; remove them")
            return None
        if not fields.has("id"):
            fields.missing(("id",), "give each story one of its own")
        return found

    def _made_id(self, fields: Fields) -> str | None:
        """Return an id that does not change when features are moved, marked as done or given other steps."""
        description = fields.peek("description")
        if not isinstance(description, str):
            return None
        made = slug(f"{fields.peek('category') or ''}\n{description.strip()}", words=description)
        self._made[made] += 1
        return made if self._made[made] == 1 else f"{made}-{self._made[made]}"

    def _words(self, fields: Fields, story_id: str) -> tuple[str, str, str | None]:
        """Return title, description and, for waves, the summary."""
        title = fields.text(fields.first(_TITLE), max_chars=_LINE_CHARS)
        description = fields.text("description", max_chars=_TEXT_CHARS)
        summary = None
        if self._dialect == "waves":
            summary = fields.text("summary", max_chars=_TEXT_CHARS)
            prompt = fields.text("prompt", max_chars=_TEXT_CHARS)
            parts = dict.fromkeys(part for part in (summary, description, prompt) if part)
            description = "\n\n".join(parts) or None
        if title is None and description is None:
            if not any(fields.has(name) for name in (*_TITLE, "description", "prompt", "summary")):
                fields.missing(_TITLE, "say in a line what is to be built")
            return story_id, "", None
        if description is None and self._dialect != "features":
            self.notes.append(
                f"story {quoted(story_id)} has no description; its title is all that roles are told"
            )
        shown = one_line(title or str(description), _LINE_CHARS if title else _TITLE_CHARS)
        return shown, description or shown, summary

    def _criteria(self, fields: Fields, story_id: str, instead: str) -> tuple[str, ...]:
        names = ("steps", *_CRITERIA) if self._dialect == "features" else _CRITERIA
        found = fields.texts(*names, max_items=_CRITERIA_LIMIT, max_chars=_CRITERION_CHARS)
        if found is None and self._dialect == "waves":
            self.notes.append(
                f"story {quoted(story_id)} has no criteria; what sums it up is taken for the only one"
            )
            return (instead,)
        if found is None:
            fields.missing(names, "write when the story is done, as a list of texts")
        elif not found and fields.peek(key := fields.key(names) or names[0]) == []:
            fields.wrong(key, "it is empty; write when the story is done, at least one text")
        return found or ()


def _files(fields: Fields) -> tuple[str, ...]:
    found: dict[str, None] = {}
    names = fields.texts("files", max_items=_FILES_LIMIT, max_chars=_PATH_CHARS)
    for index, text in enumerate(names or ()):
        try:
            found[_within(text)] = None
        except ValueError as exc:
            fields.wrong("files", str(exc), index=index)
    return tuple(found)


def _is_done(fields: Fields) -> bool:
    status = fields.text("status", max_chars=_LINE_CHARS)
    passes = fields.flag("passes")
    return passes or (status or "").lower() in DONE_STATUSES


def _question(fields: Fields) -> str | None:
    found = fields.text("question", max_chars=_TEXT_CHARS)
    if found is None and str(fields.peek("status")).lower() in BLOCKED_STATUSES:
        notes = fields.peek("notes")
        has_notes = isinstance(notes, str) and notes.strip()
        return one_line(notes, _LINE_CHARS) if has_notes else "its status says so, and no question is written"
    return found


def _within(text: str) -> str:
    """Return a path, or pattern, relative to the repository, without `.` and double slashes.

    Raises:
        ValueError: It leads out of the repository, or is not a path.
    """
    path = PurePosixPath(text)
    if not text.strip() or len(text) > _PATH_CHARS or not is_plain(text):
        raise ValueError(
            f"{quoted(text)} is no path of 1 to {_PATH_CHARS} characters without control characters"
        )
    if path.is_absolute() or ".." in path.parts or text.startswith("~"):
        raise ValueError(
            f"{quoted(text)} leads out of the repository; write a path relative to its root, without '..'"
        )
    if ".git" in (part.lower() for part in path.parts):
        raise ValueError(f"{quoted(text)} is git's own; a story does not touch it")
    return str(path)
