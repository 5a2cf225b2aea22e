"""Defines the types for stories and plans, which are the same for all dialects."""

import hashlib
import heapq
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from ringfence.frozen import frozen

Dialect = Literal["runtime", "pipeline", "ralph", "features", "waves"]
CheckKind = Literal["test", "type", "lint"]

FOREIGN_KEYS = ("x-", "_", "$")
"""Prefixes of keys that are extensions of other tools."""
DETAILS_CHARS = 8192
"""Limit for all details of a story together."""
_DETAIL_NAME_CHARS = 100
_SLUG_CHARS = 32
_HASH_CHARS = 12


@frozen
class Story:
    """A unit of work that is small enough for one agent."""

    id: str
    """The id in the file, or an id made from the story's text."""
    title: str
    """One line."""
    description: str
    criteria: tuple[str, ...]
    """The acceptance criteria."""
    priority: float
    """Lower numbers come first."""
    depends_on: tuple[str, ...] = ()
    """Ids of the stories that must be done first."""
    files: tuple[str, ...] = ()
    """The files that it will change, relative to the repository: files, directories or patterns. Empty: unknown."""
    check: str | None = None
    """A shell command that proves this story only."""
    is_done: bool = False
    question: str | None = None
    """A question that a person must answer first."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the file that loops do not use."""

    @property
    def slug(self) -> str:
        """The id as part of a git ref or a file name: lower-case letters, digits and `-`, at most 45 characters.

        Different ids have different slugs, because of a hash at the end.
        """
        return slug(self.id)


@frozen
class StoryEnd:
    """How a story ended, for the export of a plan."""

    outcome: Literal["passed", "skipped", "blocked"]
    note: str = ""
    """The reason, for people."""


@frozen
class Plan:
    """The stories of a loop, in the order of the file."""

    title: str
    description: str = ""
    context: tuple[str, ...] = ()
    """Context for every role."""
    stories: tuple[Story, ...] = ()
    dialect: Dialect = "runtime"
    source: Path | None = None
    """The stories' file; None for a plan of the planner."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the file beside the stories that loops do not use."""
    notes: tuple[str, ...] = ()
    """Notes about values that are interpreted differently from how they are written."""
    checks: Mapping[CheckKind, str] = field(default_factory=dict)
    """The file's check commands for all stories."""
    document: Any = field(default=None, repr=False)
    """The content of the file as it was read; None: there was no file."""

    def ordered(self) -> tuple[Story, ...]:
        """Return the stories in the order of work: by dependency, then priority, then index.

        Stories in a dependency cycle, and stories that depend on them, come last.
        """
        indexes = {story.id: index for index, story in enumerate(self.stories)}
        keys = {index: (story.priority, index) for index, story in enumerate(self.stories)}
        sorter = TopologicalSorter({
            index: [indexes[name] for name in story.depends_on if name in indexes]
            for index, story in enumerate(self.stories)
        })  # fmt: skip
        with suppress(CycleError):  # stories outside of the cycle are still sorted
            sorter.prepare()
        found: list[int] = []
        ready = [keys[index] for index in sorter.get_ready()]
        heapq.heapify(ready)
        while ready:
            _, index = heapq.heappop(ready)
            found.append(index)
            sorter.done(index)
            for follower in sorter.get_ready():
                heapq.heappush(ready, keys[follower])
        rest = sorted(keys.keys() - set(found), key=keys.__getitem__)
        return tuple(self.stories[index] for index in [*found, *rest])

    def story(self, story_id: str) -> Story | None:
        """Return the story with an id; None if there is no such story."""
        return next((story for story in self.stories if story.id == story_id), None)


def slug(text: str, *, words: str | None = None) -> str:
    """Return text as part of a git ref or a file name: some of its words, and a hash of the complete text.

    Args:
        text: Any text.
        words: The text from which the words are taken; None: `text`.
    """
    shown = re.sub(r"[^a-z0-9]+", "-", (words or text).lower())[:_SLUG_CHARS].strip("-") or "story"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{shown}-{digest}"


def details(story: Story) -> str:
    """Return a story's extra fields that are text or lists of text, for the roles' prompts.

    Numbers and booleans are left out, since they are rarely meant for the implementor; so are extensions of other tools.
    """
    lines: list[str] = []
    for key, value in story.extra.items():
        name = key[:_DETAIL_NAME_CHARS]
        if key.startswith(FOREIGN_KEYS):
            continue
        if isinstance(value, str) and value.strip():
            lines.append(f"{name}: {value.strip()}")
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            texts = [each.strip() for each in value if each.strip()]
            lines += [f"{name}:", *(f"- {each}" for each in texts)] if texts else []
    text = "\n".join(lines)
    return text if len(text) <= DETAILS_CHARS else f"{text[:DETAILS_CHARS]}\n[cut: {len(text)} characters]"
