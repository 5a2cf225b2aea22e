"""The dialects in which stories are written: how one is told, and where its stories stand."""

from collections.abc import Iterator, Mapping
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.frozen import frozen
from ringfence.loop.story.bounds import STORIES_LIMIT
from ringfence.loop.story.complaint import Complaints
from ringfence.loop.story.fields import Fields
from ringfence.loop.story.model import Dialect
from ringfence.loop.story.words import quoted

LISTS: Mapping[str, Dialect] = {
    "stories": "runtime",
    "userStories": "ralph",
    "features": "features",
    "waves": "waves",
}
"""The key under which stories stand, and the dialect that it is of."""

DONE = frozenset({"done", "complete", "completed", "passed", "finished"})
BLOCKED = frozenset({"blocked", "needs_human", "needs-human", "needs_person"})


@frozen
class Entry:
    """A story as it stands in a file."""

    path: KeyPath
    values: Mapping[str, Any]
    wave: int | None = None
    """Which of the waves it is in."""


def dialect_of(document: Any, complaints: Complaints) -> Dialect:
    """Which dialect a document is in.

    Raises:
        ConfigurationError: None that is known.
    """
    if isinstance(document, list):
        return "features"
    if not isinstance(document, dict):
        complaints.add((), f"stories are a mapping with {quoted('stories')}, or a list of features")
        complaints.raise_any()
    found = [key for key in LISTS if document.get(key) is not None]
    if not found:
        Fields(document, (), complaints).missing(list(LISTS), "write the list of stories")
    for key in found[1:]:
        complaints.add((key,), f"{key}: {quoted(found[0])} is there as well; keep one of them", of_key=True)
    complaints.raise_any()
    dialect = LISTS[found[0]]
    return "pipeline" if dialect == "runtime" and _is_pipeline(document) else dialect


def entries(document: Any, dialect: Dialect) -> Iterator[Entry]:
    """The stories of a document, in its order; what is no mapping is left out."""
    if dialect == "waves":
        for number, wave in enumerate(document["waves"]):
            yield from _listed(wave.get("stories"), ("waves", number, "stories"), number)
    elif isinstance(document, list):
        yield from _listed(document, (), None)
    else:
        key = key_of(document)
        yield from _listed(document[key], (key,), None)


def key_of(document: Mapping[str, Any]) -> str:
    """The key under which the stories stand."""
    return next(key for key in LISTS if document.get(key) is not None)


def check_shape(
    document: Any, dialect: Dialect, complaints: Complaints, *, most: int = STORIES_LIMIT
) -> None:
    """See that there are lists where lists have to be, of mappings, neither empty nor too long.

    Raises:
        ConfigurationError: With all that is not so.
    """
    if dialect == "waves":
        waves = document["waves"]
        _check_list(waves, ("waves",), "waves", "waves", complaints)
        for number, wave in enumerate(waves if isinstance(waves, list) else ()):
            if isinstance(wave, dict):
                path = ("waves", number, "stories")
                _check_list(wave.get("stories"), path, f"waves[{number}].stories", "stories", complaints)
    elif isinstance(document, list):
        _check_list(document, (), "", "features", complaints)
    else:
        key = key_of(document)
        _check_list(document[key], (key,), key, "stories", complaints)
    complaints.raise_any()
    count = sum(1 for _ in entries(document, dialect))
    if count > most:
        complaints.add((), f"it has {count} stories, {most} are the most; split it")
    complaints.raise_any()


def _check_list(value: Any, path: KeyPath, name: str, of: str, complaints: Complaints) -> None:
    if not isinstance(value, list):
        complaints.add(path, f"{name}: {quoted(value)} is no list; write a list of {of}")
    elif not value:
        complaints.add(path, f"{name or 'the list'} is empty; write at least one of its {of}")
    else:
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                complaints.add(
                    (*path, index), f"{name}[{index}]: {quoted(item)} is no mapping; write its fields"
                )


def _is_pipeline(document: Mapping[str, Any]) -> bool:
    """Whether what looks like the runtime's dialect is the one that goes on by `status`."""
    stories = document["stories"]
    items = [item for item in stories if isinstance(item, dict)] if isinstance(stories, list) else []
    if any("passes" in item for item in items):
        return False
    if isinstance(document.get("context"), dict) or "adrs" in document:
        return True
    return any("status" in item for item in items)


def _listed(items: Any, path: KeyPath, wave: int | None) -> Iterator[Entry]:
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield Entry((*path, index), item, wave)
