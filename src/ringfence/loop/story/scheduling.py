"""Which stories may be worked on now. It only reads; who asks it keeps what is done, skipped and running."""

from collections.abc import Collection, Mapping
from dataclasses import field

from ringfence.frozen import frozen
from ringfence.loop.story.model import Plan, Story
from ringfence.loop.story.paths import Territory
from ringfence.loop.story.words import one_line, quoted

_QUESTION_CHARS = 300


@frozen
class Ready:
    """How the stories stand that nobody works on."""

    stories: tuple[Story, ...] = ()
    """May all be begun now, and at once; the most urgent first."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Ids of stories that have to be skipped now, and why: what they depend on was."""
    blocked: Mapping[str, str] = field(default_factory=dict)
    """Ids of stories that a person, or a circle, keeps from being begun, and why."""


def ready(plan: Plan, done: Collection[str], skipped: Collection[str], running: Collection[str]) -> Ready:
    """Which stories may be begun. Two that share files never run at once.

    Args:
        plan: The stories; one that `is_done` counts as done.
        done: Ids of stories that passed in this loop.
        skipped: Ids of stories that were given up.
        running: Ids of stories that are worked on.
    """
    round_ = _Round(plan, done, skipped, running)
    for story in plan.ordered():
        round_.look_at(story)
    return round_.result()


class _Round:
    def __init__(
        self, plan: Plan, done: Collection[str], skipped: Collection[str], running: Collection[str]
    ) -> None:
        self._done = {*done, *(story.id for story in plan.stories if story.is_done)}
        self._gone = set(skipped)
        self._running = set(running)
        self._busy = Territory()
        for story in plan.stories:
            if story.id in self._running:
                self._busy.take(story.files)
        self._chosen: list[Story] = []
        self._skipped: dict[str, str] = {}
        self._blocked: dict[str, str] = {}
        self._waiting: dict[str, Story] = {}

    def look_at(self, story: Story) -> None:
        """Decide on a story, after those that it depends on."""
        if story.id in self._done | self._gone | self._running:
            return
        lost = next((name for name in story.depends_on if name in self._gone), None)
        held = next((name for name in story.depends_on if name in self._blocked), None)
        if lost is not None:
            self._gone.add(story.id)
            self._skipped[story.id] = f"it depends on {quoted(lost)}, which was skipped"
        elif story.question is not None:
            self._blocked[story.id] = f'it needs a person: "{one_line(story.question, _QUESTION_CHARS)}"'
        elif held is not None:
            self._blocked[story.id] = f"it depends on {quoted(held)}, which is blocked"
        elif not self._done.issuperset(story.depends_on):
            self._waiting[story.id] = story
        elif not self._busy.holds_any(story.files):
            self._chosen.append(story)
            self._busy.take(story.files)

    def result(self) -> Ready:
        """What was decided."""
        if not self._chosen and not self._running:
            for story in self._waiting.values():
                missing = next(name for name in story.depends_on if name not in self._done)
                self._blocked[story.id] = f"it depends on {quoted(missing)}, which will never be done"
        return Ready(tuple(self._chosen), self._skipped, self._blocked)
