"""Which story comes before which, and what is wrong about that."""

import heapq
from collections.abc import Iterator, Sequence

from ringfence.config.names import nearest
from ringfence.frozen import frozen
from ringfence.loop.story.model import Story
from ringfence.loop.story.words import id_key, quoted

_SHOWN_OF_CYCLE = 12
_GUESSES = 10
"""So many unknown names are compared with all that are known, which takes long."""


@frozen
class Problem:
    """What is wrong with one story among the others."""

    place: int
    """Of the story in the plan, from 0."""
    field: str
    """`id` or `depends_on`."""
    message: str
    value: str = ""
    """The dependency that is to blame, where one is."""


def in_order(stories: Sequence[Story]) -> tuple[Story, ...]:
    """By dependency, then priority, then place; stories of a circle, and what waits for them, come last."""
    places = {story.id: place for place, story in enumerate(stories)}
    waits = [{places[name] for name in story.depends_on if name in places} for story in stories]
    followers: dict[int, list[int]] = {}
    for place, needed in enumerate(waits):
        for each in needed:
            followers.setdefault(each, []).append(place)
    ready = [(stories[place].priority, place) for place, needed in enumerate(waits) if not needed]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        _, place = heapq.heappop(ready)
        found.append(place)
        for follower in followers.get(place, ()):
            waits[follower].discard(place)
            if not waits[follower]:
                heapq.heappush(ready, (stories[follower].priority, follower))
    rest = sorted(set(range(len(stories))) - set(found), key=lambda place: (stories[place].priority, place))
    return tuple(stories[place] for place in [*found, *rest])


def problems(stories: Sequence[Story]) -> Iterator[Problem]:
    """Ids that are there twice, dependencies that are not there, and a circle."""
    yield from _twice(stories)
    yield from _unknown(stories)
    if circle := cycle(stories):
        place = next(number for number, story in enumerate(stories) if story.id == circle[0])
        following = circle[1] if len(circle) > 1 else circle[0]
        yield Problem(place, "depends_on", f"{_drawn(circle)} is a circle; remove one of these", following)


def cycle(stories: Sequence[Story]) -> tuple[str, ...]:
    """The ids of a circle of dependencies, each depending on the next; empty if there is none."""
    needs = {story.id: story.depends_on for story in stories}
    finished: set[str] = set()
    for start in needs:
        path: dict[str, Iterator[str]] = {}
        if start not in finished:
            path[start] = iter(needs[start])
        while path:
            current = next(reversed(path))
            following = next((each for each in path[current] if each in needs and each not in finished), None)
            if following is None:
                finished.add(current)
                del path[current]
            elif following in path:
                ids = list(path)
                return tuple(ids[ids.index(following) :])
            else:
                path[following] = iter(needs[following])
    return ()


def _twice(stories: Sequence[Story]) -> Iterator[Problem]:
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
    shown = [quoted(each) for each in circle[:_SHOWN_OF_CYCLE]]
    middle = ["..."] if len(circle) > len(shown) else []
    return " -> ".join([*shown, *middle, quoted(circle[0])])
