"""Checks the dependencies and the completeness of a plan's stories, and selects the stories that can be started."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

from ringfence.config.names import nearest
from ringfence.frozen import frozen
from ringfence.loop.story.model import Plan, Story
from ringfence.loop.story.words import id_key, one_line, quoted

_MAX_CYCLE_SHOWN = 12
_MAX_GUESSES = 10
"""How many unknown ids are compared with all known ids, which is slow."""
_QUESTION_CHARS = 300
_PATTERN = frozenset("*?[{")
_ALTERNATIVES = re.compile(r"\{([^{}]*,[^{}]*)\}")
"""Innermost braces with alternatives, such as `{a,b}`."""
_MAX_ALTERNATIVES = 100


@frozen
class Problem:
    """A problem of a story's id or dependencies."""

    index: int
    """The story's index in the plan, from 0."""
    field: str
    """`id` or `depends_on`."""
    message: str
    value: str = ""
    """The dependency that is wrong; empty for a problem of an id."""


def problems(stories: Sequence[Story]) -> Iterator[Problem]:
    """Yield the problems of duplicate ids, unknown dependencies, and one dependency cycle."""
    yield from _duplicates(stories)
    yield from _unknown_dependencies(stories)
    if cycle := _find_cycle(stories):
        index = next(number for number, story in enumerate(stories) if story.id == cycle[0])
        message = f"{_format_cycle(cycle)} is a dependency cycle; remove one of these"
        yield Problem(index, "depends_on", message, cycle[1] if len(cycle) > 1 else cycle[0])


def _find_cycle(stories: Sequence[Story]) -> list[str]:
    """Return the ids of a dependency cycle, from its first story in the plan; empty if there is no cycle."""
    indexes = {story.id: index for index, story in enumerate(stories)}
    sorter = TopologicalSorter(
        {story.id: [name for name in story.depends_on if name in indexes] for story in stories}
    )
    try:
        sorter.prepare()
    except CycleError as exc:
        found: list[str] = exc.args[1][:0:-1]
        first = found.index(min(found, key=indexes.__getitem__))
        return found[first:] + found[:first]
    return []


def _duplicates(stories: Sequence[Story]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, story in enumerate(stories):
        first = min(seen.setdefault(key, index) for key in (id_key(story.id), story.slug))
        if first != index:
            other = stories[first].id
            how = "" if other == story.id else f", which has the same slug as {quoted(story.id)}"
            yield Problem(
                index, "id", f"there is a story {quoted(other)} already{how}; give each an id of its own"
            )


def _unknown_dependencies(stories: Sequence[Story]) -> Iterator[Problem]:
    ids = {id_key(story.id): story.id for story in stories}
    known = {story.id for story in stories}
    guesses = 0
    for index, story in enumerate(stories):
        for name in story.depends_on:
            if name in known:
                continue
            guess = ids.get(id_key(name))
            if guess is None and (guesses := guesses + 1) <= _MAX_GUESSES:
                guess = nearest(name, known)
            hint = f"; did you mean {quoted(guess)}?" if guess else "; write the id of one, or remove it"
            yield Problem(index, "depends_on", f"there is no story {quoted(name)}{hint}", name)


def _format_cycle(cycle: Sequence[str]) -> str:
    shown = [quoted(each) for each in cycle[:_MAX_CYCLE_SHOWN]]
    middle = ["..."] if len(cycle) > len(shown) else []
    return " -> ".join([*shown, *middle, quoted(cycle[0])])


def check_plan(plan: Plan, *, has_check: bool) -> list[str]:
    """Return the problems that prevent work on a plan, one line each. See also `questions`.

    Args:
        plan: The plan.
        has_check: Whether the loop has checks that prove each story, such as a test runner.
    """
    return list(_objections(plan, has_check=has_check or "test" in plan.checks))


def questions(plan: Plan) -> list[str]:
    """Return one line for each story with a question that a person must answer before the story is started.

    Such stories do not prevent work on the others.
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
        yield "every story that is left needs an answer; answer the questions, and remove them"
    for problem in problems(plan.stories):
        yield f"story {quoted(plan.stories[problem.index].id)}: {problem.field}: {problem.message}"
    for story in open_stories:
        for reason in _missing_parts(story, has_check=has_check):
            yield f"story {quoted(story.id)}: {reason}"
        for path in story.files:
            if _expand_braces(path) is None:
                reason = f"{quoted(path)} stands for more than {_MAX_ALTERNATIVES} patterns"
                advice = "write fewer alternatives in braces, or a directory"
                yield f"story {quoted(story.id)}: files: {reason}; {advice}"


def _missing_parts(story: Story, *, has_check: bool) -> Iterator[str]:
    if not any(text.strip() for text in story.criteria):
        yield "it has no criteria; write when it is done"
    if story.check is None and not has_check:
        yield "nothing proves it: no test runner was found, and it has no `check`; write a command that does"


@frozen
class Ready:
    """The stories that no task works on, by what can be done with them now."""

    stories: list[Story] = field(default_factory=list)
    """The stories that can be started now, all at the same time; the most urgent first."""
    skipped: dict[str, str] = field(default_factory=dict)
    """The stories to skip because a story that they depend on was skipped: id to reason."""
    blocked: dict[str, str] = field(default_factory=dict)
    """The stories that cannot be started, by id, with the reason: a question that a person must answer, a dependency
    on a blocked story or on one that does not exist, or a dependency cycle."""


def ready(plan: Plan, done: Collection[str], skipped: Collection[str], running: Collection[str]) -> Ready:
    """Return which stories can be started. Two stories that share files never run at the same time.

    Args:
        plan: The stories; one that `is_done` counts as done.
        done: Ids of stories that passed in this loop.
        skipped: Ids of stories that were skipped.
        running: Ids of stories that are being worked on.
    """
    passed = {*done, *(story.id for story in plan.stories if story.is_done)}
    all_skipped = set(skipped)
    files = _Files(path for story in plan.stories if story.id in running for path in story.files)
    found = Ready()
    waiting: list[Story] = []
    for story in plan.ordered():  # dependencies come first
        if story.id in passed or story.id in all_skipped or story.id in running:
            continue
        if reason := _depends_on(story, all_skipped, "was skipped"):
            all_skipped.add(story.id)
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
    return f'it needs an answer: "{one_line(story.question, _QUESTION_CHARS)}"'


def names_path(named: Iterable[str], path: str) -> bool:
    """Return whether a story's `files` name a path: itself, a directory above it, or a pattern of either.

    In a pattern, `*` and `?` also match slashes, `[ab]` matches one character, and `{a,b}` stands for two patterns.
    """
    parts = PurePosixPath(path).parts
    prefixes = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(each == "." or any(_matches(each, prefix) for prefix in prefixes) for each in named)


def _matches(pattern: str, path: str) -> bool:
    if path == pattern:
        return True
    if _PATTERN.isdisjoint(pattern):
        return False
    return any(path == each or fnmatchcase(path, each) for each in _expand_braces(pattern) or ())


@lru_cache(maxsize=1024)
def _expand_braces(pattern: str) -> frozenset[str] | None:
    """Return the patterns that a pattern with alternatives in braces stands for; None: they are too many."""
    expanded, waiting = set[str](), {pattern}
    while waiting:
        each = waiting.pop()
        found = _ALTERNATIVES.search(each)
        if found is None:
            expanded.add(each)
        else:
            waiting |= {each[: found.start()] + one + each[found.end() :] for one in found[1].split(",")}
        if len(expanded) + len(waiting) > _MAX_ALTERNATIVES:
            return None
    return frozenset(expanded)


class _Files:
    """A set of files. A directory stands for everything below it, a pattern for everything that it could match."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: set[tuple[str, ...]] = set()
        self._above: set[tuple[str, ...]] = set()
        self.add(paths)

    def add(self, paths: Iterable[str]) -> None:
        """Add files to the set."""
        for parts in map(_parts, paths):
            self._paths.add(parts)
            self._above.update(parts[:length] for length in range(len(parts)))

    def overlap(self, paths: Iterable[str]) -> bool:
        """Return whether the paths may name a file of the set."""
        return any(
            parts in self._above or any(parts[:length] in self._paths for length in range(len(parts) + 1))
            for parts in map(_parts, paths)
        )


def _parts(path: str) -> tuple[str, ...]:
    """Return the parts of a path before the first that is a pattern."""
    parts = PurePosixPath(path).parts
    patterns = [number for number, part in enumerate(parts) if _PATTERN & set(part)]
    return parts[: patterns[0]] if patterns else parts
