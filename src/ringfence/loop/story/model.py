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
"""How keys begin that are somebody else's on purpose."""
DETAILS_CHARS = 8192
"""Of all details of a story together."""
_DETAIL_NAME_CHARS = 100
_SLUG_CHARS = 32
_HASH_CHARS = 12


@frozen
class Story:
    """One thing to be built, small enough for one agent."""

    id: str
    """As the file says it, or made of the story's words."""
    title: str
    """One line."""
    description: str
    criteria: tuple[str, ...]
    """When it is done, each for itself."""
    priority: float
    """Lower is sooner."""
    depends_on: tuple[str, ...] = ()
    """Ids of the stories that have to be done before."""
    files: tuple[str, ...] = ()
    """What it will touch, relative to the repository: files, directories or patterns. Empty: not said."""
    check: str | None = None
    """A shell command that proves it, of its own."""
    is_done: bool = False
    question: str | None = None
    """What a person has to answer first."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the file that mean nothing here."""

    @property
    def slug(self) -> str:
        """Its id as part of a git ref or a file name: small letters, digits and `-`, at most 45 characters.

        Ids that differ have slugs that differ, by a hash at the end.
        """
        return slug(self.id)


@frozen
class StoryEnd:
    """How a story stands when a plan is exported."""

    outcome: Literal["passed", "skipped", "blocked"]
    note: str = ""
    """Why, for people."""


@frozen
class Plan:
    """The stories of a loop, in the order of the file."""

    title: str
    description: str = ""
    context: tuple[str, ...] = ()
    """What every role should know."""
    stories: tuple[Story, ...] = ()
    dialect: Dialect = "runtime"
    source: Path | None = None
    """The file; None: nobody wrote one."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the file beside the stories that mean nothing here."""
    notes: tuple[str, ...] = ()
    """What was taken otherwise than it was written."""
    checks: Mapping[CheckKind, str] = field(default_factory=dict)
    """Commands that the file gives for all stories."""
    document: Any = field(default=None, repr=False)
    """The values of the file as they were read; None: there was no file."""

    def ordered(self) -> tuple[Story, ...]:
        """Return the stories as they should be worked on: by dependency, then priority, then index.

        Of stories that depend on each other in a circle, all come last, as do those that wait for them.
        """
        indexes = {story.id: index for index, story in enumerate(self.stories)}
        keys = {index: (story.priority, index) for index, story in enumerate(self.stories)}
        sorter = TopologicalSorter({
            index: [indexes[name] for name in story.depends_on if name in indexes]
            for index, story in enumerate(self.stories)
        })  # fmt: skip
        with suppress(CycleError):  # what waits for no circle is sorted all the same
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
        """Return the story of that id."""
        return next((story for story in self.stories if story.id == story_id), None)


def slug(text: str, *, words: str | None = None) -> str:
    """Return text as part of a git ref or a file name: words of it, and a hash of the whole.

    Args:
        text: Anything.
        words: Where the words are from; None: from the text.
    """
    shown = re.sub(r"[^a-z0-9]+", "-", (words or text).lower())[:_SLUG_CHARS].strip("-") or "story"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{shown}-{digest}"


def details(story: Story) -> str:
    """Return a story's fields that mean nothing here and are text or lists of text; roles may make something of them.

    Numbers and flags are left out, since they are rarely for who builds it; so are keys of somebody else.
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
