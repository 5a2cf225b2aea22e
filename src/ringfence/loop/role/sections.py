"""What of a briefing each role is shown, and in what order."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from ringfence.frozen import frozen
from ringfence.loop.role.blocks import BlockKind, plain
from ringfence.loop.role.model import Briefing, Role

Trim = Literal["never", "end", "middle", "diff"]
"""How a section is cut if it must be: not at all; its end or its middle is left out; as a diff, with its files named."""


@frozen
class Section:
    """A part of a prompt."""

    name: str
    title: str
    body: str
    kind: BlockKind
    trim: Trim
    share: float
    """Most of the room for sections that may be cut, where these do not all fit."""


_Body = Callable[[Briefing], str]


def _numbered(texts: Iterable[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def _named(texts: Mapping[str, str]) -> str:
    return "\n\n".join(f"--- {name}\n{text}" for name, text in texts.items())


def _plan(briefing: Briefing) -> str:
    return "\n".join(filter(None, [briefing.plan_title, briefing.plan_description, *briefing.context]))


def _story(briefing: Briefing) -> str:
    return "\n".join(filter(None, [f"{briefing.story_id} {briefing.story_title}".strip(), briefing.story]))


def _feedback(briefing: Briefing) -> str:
    return "\n\n".join(f"Attempt {number}: {text}" for number, text in enumerate(briefing.feedback, start=1))


def _results(briefing: Briefing) -> str:
    """Those that did not pass first, then those of the story's own files: what is cut is of least use."""

    def rank(result: tuple[str, str]) -> tuple[bool, bool]:
        name, outcome = result
        return outcome == "passed", not any(path in name for path in briefing.tests)

    return "\n".join(f"{outcome}: {name}" for name, outcome in sorted(briefing.results.items(), key=rank))


_ALL: dict[str, tuple[str, BlockKind, Trim, float, _Body]] = {
    "goal": ("The goal", "task", "never", 1, lambda b: b.goal),
    "plan": ("The plan that the story is part of", "task", "end", 0.2, _plan),
    "story": ("The story", "task", "never", 1, _story),
    "criteria": ("Acceptance criteria, numbered", "task", "never", 1, lambda b: _numbered(b.criteria)),
    "feedback": ("Why earlier attempts were rejected, oldest first", "data", "never", 1, _feedback),
    "details": ("What else the stories' file says of the story", "data", "end", 0.1, lambda b: b.details),
    "commands": ("Commands that will check the work", "data", "end", 0.1, lambda b: "\n".join(b.commands)),
    "checks": ("What the checks said", "data", "middle", 0.25, lambda b: _named(b.checks)),
    "results": ("Tests that ran, by their ids", "data", "end", 0.2, _results),
    "review": ("The reviewer's answers", "data", "end", 0.15, lambda b: b.review),
    "diff": ("What the attempt changed", "data", "diff", 0.6, lambda b: b.diff),
    "tests": ("The story's tests, frozen", "data", "end", 0.5, lambda b: _named(b.tests)),
    "protected": (
        "Protected files: your changes of these are left out",
        "data",
        "end",
        0.2,
        lambda b: "\n".join(b.protected),
    ),
    "notes": ("What was noticed about the attempt", "data", "end", 0.2, lambda b: "\n".join(b.notes)),
    "guides": ("What the project tells agents", "data", "end", 0.3, lambda b: _named(b.guides)),
    "files": ("Files of the project", "data", "end", 0.3, lambda b: "\n".join(b.files)),
}
SHOWN: dict[Role, tuple[str, ...]] = {
    "planner": ("goal", "plan", "feedback", "guides", "files"),
    "test_writer": ("story", "criteria", "feedback", "details", "plan", "commands", "guides", "files"),
    "implementor": (
        "story",
        "criteria",
        "feedback",
        "details",
        "tests",
        "protected",
        "plan",
        "commands",
        "guides",
        "files",
    ),
    "reviewer": (
        "story",
        "criteria",
        "details",
        "checks",
        "results",
        "notes",
        "diff",
        "tests",
        "plan",
        "guides",
    ),
    "judge": (
        "story",
        "criteria",
        "details",
        "checks",
        "results",
        "notes",
        "review",
        "diff",
        "tests",
        "plan",
        "guides",
    ),
}


def sections_for(role: Role, briefing: Briefing) -> list[Section]:
    """Those of the role that are not empty, with nothing in them that cannot be seen."""
    found = []
    for name in SHOWN[role]:
        title, kind, trim, share, body = _ALL[name]
        if text := plain(body(briefing)).strip("\n"):
            found.append(Section(name, title, text, kind, trim, share))
    return found
