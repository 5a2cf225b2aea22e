"""Whether the stories of a plan can be worked on: problems among them, what lacks, and which may be begun now."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

from ringfence.config.names import nearest
from ringfence.frozen import frozen
from ringfence.loop.story.model import Plan, Story
from ringfence.loop.story.words import id_key, one_line, quoted

_CIRCLE_SHOWN = 12
_GUESSES = 10
"""So many unknown names are compared with all that are known, which takes long."""
_QUESTION_CHARS = 300
_PATTERN = frozenset("*?[{")


@frozen
class Problem:
    """What is wrong with one story among the others."""

    place: int
    """Of the story in the plan, from 0."""
    field: str
    """`id` or `depends_on`."""
    message: str
    value: str = ""
    """The dependency that is wrong, where one is."""


def problems(stories: Sequence[Story]) -> Iterator[Problem]:
    """Yield ids that are there twice, dependencies that are not there, and a circle."""
    yield from _repeated(stories)
    yield from _unknown(stories)
    if circle := _circle(stories):
        place = next(number for number, story in enumerate(stories) if story.id == circle[0])
        message = f"{_drawn(circle)} is a circle; remove one of these"
        yield Problem(place, "depends_on", message, circle[1] if len(circle) > 1 else circle[0])


def _circle(stories: Sequence[Story]) -> list[str]:
    """Return ids that depend each on the next and the last on the first, which is the first in the plan; else none."""
    places = {story.id: place for place, story in enumerate(stories)}
    sorter = TopologicalSorter(
        {story.id: [name for name in story.depends_on if name in places] for story in stories}
    )
    try:
        sorter.prepare()
    except CycleError as exc:
        found: list[str] = exc.args[1][:0:-1]
        first = found.index(min(found, key=places.__getitem__))
        return found[first:] + found[:first]
    return []


def _repeated(stories: Sequence[Story]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for place, story in enumerate(stories):
        first = min(seen.setdefault(key, place) for key in (id_key(story.id), story.slug))
        if first != place:
            other = stories[first].id
            how = "" if other == story.id else f", which is taken for the same as {quoted(story.id)}"
            yield Problem(
                place, "id", f"there is a story {quoted(other)} already{how}; give each an id of its own"
            )


def _unknown(stories: Sequence[Story]) -> Iterator[Problem]:
    ids = {id_key(story.id): story.id for story in stories}
    known = {story.id for story in stories}
    guesses = 0
    for place, story in enumerate(stories):
        for name in story.depends_on:
            if name in known:
                continue
            guess = ids.get(id_key(name))
            if guess is None and (guesses := guesses + 1) <= _GUESSES:
                guess = nearest(name, known)
            hint = f"; did you mean {quoted(guess)}?" if guess else "; write the id of one, or remove it"
            yield Problem(place, "depends_on", f"there is no story {quoted(name)}{hint}", name)


def _drawn(circle: Sequence[str]) -> str:
    shown = [quoted(each) for each in circle[:_CIRCLE_SHOWN]]
    middle = ["..."] if len(circle) > len(shown) else []
    return " -> ".join([*shown, *middle, quoted(circle[0])])


def check_plan(plan: Plan, *, has_check: bool) -> list[str]:
    """Return everything that stands against working on a plan, a line each; empty: nothing. See also `questions`.

    Args:
        plan: The plan.
        has_check: Whether the loop has a command of its own that proves each story, such as a test runner.
    """
    return list(_objections(plan, has_check=has_check or "test" in plan.checks))


def questions(plan: Plan) -> list[str]:
    """Return the stories that a person has to say something to before they are begun, a line each.

    They do not stand against working on the others.
    """
    return [
        f"story {quoted(story.id)}: {_question(story)}; "
        "answer it in the description and remove the question, or later by `ringfence loop retry --answer`"
        for story in plan.stories
        if story.question is not None and not story.is_done
    ]


def _objections(plan: Plan, *, has_check: bool) -> Iterator[str]:
    open_stories = [story for story in plan.stories if not story.is_done]
    if not plan.stories:
        yield "the plan has no stories; write at least one"
    elif not open_stories:
        yield "every story is done already; nothing is left to do"
    elif all(story.question is not None for story in open_stories):
        yield "every story that is left needs a person; answer the questions, and remove them"
    for problem in problems(plan.stories):
        yield f"story {quoted(plan.stories[problem.place].id)}: {problem.field}: {problem.message}"
    for story in open_stories:
        for reason in _of_story(story, has_check=has_check):
            yield f"story {quoted(story.id)}: {reason}"


def _of_story(story: Story, *, has_check: bool) -> Iterator[str]:
    if not any(text.strip() for text in story.criteria):
        yield "it has no criteria; write when it is done"
    if story.check is None and not has_check:
        yield "nothing proves it: no test runner was found, and it has no `check`; write a command that does"


@frozen
class Ready:
    """How the stories stand that nobody works on."""

    stories: list[Story] = field(default_factory=list)
    """May all be begun now, and at once; the most urgent first."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Ids of stories that have to be skipped now, and why: what they depend on was."""
    blocked: dict[str, str] = field(default_factory=dict)
    """Ids of stories that a person, or a circle, keeps from being begun, and why."""


def ready(plan: Plan, done: Collection[str], skipped: Collection[str], running: Collection[str]) -> Ready:
    """Return which stories may be begun. Two that share files never run at once.

    Args:
        plan: The stories; one that `is_done` counts as done.
        done: Ids of stories that passed in this loop.
        skipped: Ids of stories that were given up.
        running: Ids of stories that are worked on.
    """
    passed = {*done, *(story.id for story in plan.stories if story.is_done)}
    lost = set(skipped)
    files = _Files(path for story in plan.stories if story.id in running for path in story.files)
    found = Ready()
    waiting: list[Story] = []
    for story in plan.ordered():  # after those that it depends on
        if story.id in passed or story.id in lost or story.id in running:
            continue
        if reason := _depends_on(story, lost, "was skipped"):
            lost.add(story.id)
            found.skipped[story.id] = reason
        elif reason := _question(story) or _depends_on(story, found.blocked, "is blocked"):
            found.blocked[story.id] = reason
        elif not passed.issuperset(story.depends_on):
            waiting.append(story)
        elif not files.overlap(story.files):
            found.stories.append(story)
            files.add(story.files)
    if not found.stories and not running:
        for story in waiting:
            missing = set(story.depends_on) - passed
            found.blocked[story.id] = _depends_on(story, missing, "will never be done")
    return found


def _depends_on(story: Story, others: Collection[str], outcome: str) -> str:
    name = next((name for name in story.depends_on if name in others), None)
    return "" if name is None else f"it depends on {quoted(name)}, which {outcome}"


def _question(story: Story) -> str:
    if story.question is None:
        return ""
    return f'it needs a person: "{one_line(story.question, _QUESTION_CHARS)}"'


def names_path(named: Iterable[str], path: str) -> bool:
    """Return whether a story's `files` name a path: itself, a directory above it, or a pattern of either."""
    parts = PurePosixPath(path).parts
    places = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(each == "." or any(_matches(each, place) for place in places) for each in named)


def _matches(pattern: str, place: str) -> bool:
    return place == pattern or (not _PATTERN.isdisjoint(pattern) and fnmatchcase(place, pattern))


class _Files:
    """Files that are taken; a directory means all below it, a pattern all it could match."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._taken: set[tuple[str, ...]] = set()
        self._above: set[tuple[str, ...]] = set()
        self.add(paths)

    def add(self, paths: Iterable[str]) -> None:
        """Take files."""
        for parts in map(_parts, paths):
            self._taken.add(parts)
            self._above.update(parts[:length] for length in range(len(parts)))

    def overlap(self, paths: Iterable[str]) -> bool:
        """Return whether some file may be meant by these that is taken already."""
        return any(
            parts in self._above or any(parts[:length] in self._taken for length in range(len(parts) + 1))
            for parts in map(_parts, paths)
        )


def _parts(path: str) -> tuple[str, ...]:
    """Return the parts of a path up to the first that is a pattern."""
    parts = PurePosixPath(path).parts
    patterns = [number for number, part in enumerate(parts) if _PATTERN & set(part)]
    return parts[: patterns[0]] if patterns else parts
