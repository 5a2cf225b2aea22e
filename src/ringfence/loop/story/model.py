"""What a loop works on: stories, and the plan that holds them, whichever dialect they were written in."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ringfence.frozen import frozen

Dialect = Literal["runtime", "pipeline", "ralph", "features", "waves"]
CheckKind = Literal["test", "type", "lint"]

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
        """The stories as they should be worked on: by dependency, then priority, then place.

        Of stories that depend on each other in a circle, all come last.
        """
        from ringfence.loop.story.order import in_order

        return in_order(self.stories)

    def story(self, story_id: str) -> Story | None:
        """The story of that id."""
        return next((story for story in self.stories if story.id == story_id), None)


def slug(text: str, *, words: str | None = None) -> str:
    """Text as part of a git ref or a file name: words of it, and a hash of the whole.

    Args:
        text: Anything.
        words: Where the words are from; None: from the text.
    """
    shown = re.sub(r"[^a-z0-9]+", "-", (words or text).lower())[:_SLUG_CHARS].strip("-") or "story"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{shown}-{digest}"
