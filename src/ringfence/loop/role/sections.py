"""Defines the briefing of a role, and the sections of prompts that are made from it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Literal

from ringfence.frozen import frozen
from ringfence.loop.role.blocks import BlockKind

Trim = Literal["never", "end", "middle", "diff"]
"""How a section is shortened: not at all; by omitting its end or its middle; or as a diff, with its files named."""


@frozen
class Briefing:
    """The information available when a role begins; each role's prompt shows the sections that it needs."""

    goal: str = ""
    """The user's goal, if there are no stories yet."""
    plan_title: str = ""
    plan_description: str = ""
    context: tuple[str, ...] = ()
    """The plan's statements about all of its stories."""
    story_id: str = ""
    story_title: str = ""
    story: str = ""
    """Its description."""
    criteria: tuple[str, ...] = ()
    """Criteria of the story. A verdict names them by their number, counted from 1."""
    details: str = ""
    """Other fields of the story in its file."""
    feedback: tuple[str, ...] = ()
    """Why earlier attempts were rejected, the oldest first."""
    decisions: tuple[str, ...] = ()
    """Why a person rejected earlier work on the story that had been accepted, the oldest reason first."""
    commands: tuple[str, ...] = ()
    """The commands by which the work will be checked."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """The tests of this story: paths and texts."""
    protected: tuple[str, ...] = ()
    """Files whose changes by an attempt are always undone, each with the reason."""
    notes: tuple[str, ...] = ()
    """Observations about an attempt, for reviewer and judge."""
    diff: str = ""
    """The patch of this story's attempt alone."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """A summary of each check, by its name."""
    results: Mapping[str, str] = field(default_factory=dict)
    """The outcome of each test, by its id, which a verdict may name as evidence."""
    review: str = ""
    """The reviewer's answers."""
    files: tuple[str, ...] = ()
    """Paths of the project's files."""
    guides: Mapping[str, str] = field(default_factory=dict)
    """The project's instructions for agents: `CLAUDE.md`, `AGENTS.md`, their texts."""


@frozen
class Section:
    """A part of a prompt."""

    name: str
    title: str
    kind: BlockKind
    trim: Trim
    share: float
    """The largest share of the room for sections that may be shortened, if these do not all fit."""
    body: Callable[[Briefing], str]


def _numbered(texts: Iterable[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def _named(texts: Mapping[str, str]) -> str:
    return "\n\n".join(f"--- {name}\n{text}" for name, text in texts.items())


def _plan(briefing: Briefing) -> str:
    return "\n".join(filter(None, [briefing.plan_title, briefing.plan_description, *briefing.context]))


def _story(briefing: Briefing) -> str:
    return "\n".join(filter(None, [f"{briefing.story_id} {briefing.story_title}".strip(), briefing.story]))


def _feedback(briefing: Briefing) -> str:
    decided = (f"Accepted before, and then {text}" for text in briefing.decisions)
    attempts = (f"Attempt {number}: {text}" for number, text in enumerate(briefing.feedback, start=1))
    return "\n\n".join([*decided, *attempts])


def _results(briefing: Briefing) -> str:
    """Return results: first those that did not pass, then those of the story's tests, as the end is cut first."""

    def rank(result: tuple[str, str]) -> tuple[bool, bool]:
        name, outcome = result
        return outcome == "passed", not any(path in name for path in briefing.tests)

    return "\n".join(f"{outcome}: {name}" for name, outcome in sorted(briefing.results.items(), key=rank))


_PROTECTED = "Protected files: your changes of these are left out"
_ALL = (
    Section("goal", "The goal", "task", "never", 1, lambda b: b.goal),
    Section("plan", "The plan that the story is part of", "task", "end", 0.2, _plan),
    Section("story", "The story", "task", "never", 1, _story),
    Section("criteria", "Acceptance criteria, numbered", "task", "never", 1, lambda b: _numbered(b.criteria)),
    Section("feedback", "Why earlier attempts were rejected, oldest first", "data", "never", 1, _feedback),
    Section(
        "details", "What else the stories' file says of the story", "data", "end", 0.1, lambda b: b.details
    ),
    Section(
        "commands", "Commands that will check the work", "data", "end", 0.1, lambda b: "\n".join(b.commands)
    ),
    Section("checks", "What the checks said", "data", "middle", 0.25, lambda b: _named(b.checks)),
    Section("results", "Tests that ran, by their ids", "data", "end", 0.2, _results),
    Section("review", "The reviewer's answers", "data", "end", 0.15, lambda b: b.review),
    Section("diff", "What the attempt changed", "data", "diff", 0.6, lambda b: b.diff),
    Section("tests", "The story's tests, frozen", "data", "end", 0.5, lambda b: _named(b.tests)),
    Section("protected", _PROTECTED, "data", "end", 0.2, lambda b: "\n".join(b.protected)),
    Section("notes", "What was noticed about the attempt", "data", "end", 0.2, lambda b: "\n".join(b.notes)),
    Section("guides", "What the project tells agents", "data", "end", 0.3, lambda b: _named(b.guides)),
    Section("files", "Files of the project", "data", "end", 0.3, lambda b: "\n".join(b.files)),
)
SECTIONS = {section.name: section for section in _ALL}
