"""Recognises the dialect of a stories' file, and yields the stories in it."""

from collections.abc import Iterator, Mapping
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.frozen import frozen
from ringfence.loop.story.fields import ErrorCollector, Fields
from ringfence.loop.story.model import Dialect
from ringfence.loop.story.words import quoted

DIALECT_BY_KEY: Mapping[str, Dialect] = {
    "stories": "runtime",
    "userStories": "ralph",
    "features": "features",
    "waves": "waves",
}
"""Maps the key of the list of stories to the file's dialect."""

DONE_STATUSES = frozenset({"done", "complete", "completed", "passed", "finished"})
BLOCKED_STATUSES = frozenset({"blocked", "needs_human", "needs-human", "needs_person"})


@frozen
class Entry:
    """A story's mapping in a file."""

    path: KeyPath
    values: Mapping[str, Any]
    wave: int | None = None
    """The index of the story's wave; None if the dialect has no waves."""


def dialect_of(document: Any, complaints: ErrorCollector) -> Dialect:
    """Return the dialect of a document.

    Raises:
        ConfigurationError: The dialect is unknown.
    """
    if isinstance(document, list):
        return "features"
    if not isinstance(document, dict):
        complaints.add((), f"stories are a mapping with {quoted('stories')}, or a list of features")
        complaints.raise_any()
    found = [key for key in DIALECT_BY_KEY if document.get(key) is not None]
    if not found:
        Fields(document, (), complaints).missing(list(DIALECT_BY_KEY), "write the list of stories")
    for key in found[1:]:
        complaints.add((key,), f"{key}: {quoted(found[0])} is there as well; keep one of them", of_key=True)
    complaints.raise_any()
    dialect = DIALECT_BY_KEY[found[0]]
    return "pipeline" if dialect == "runtime" and _is_pipeline(document) else dialect


def entries(document: Any, dialect: Dialect) -> Iterator[Entry]:
    """Yield the stories of a document, in order; items that are not mappings are left out."""
    for items, path, wave in _lists(document, dialect):
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                yield Entry((*path, index), item, wave)


def check_shape(document: Any, dialect: Dialect, complaints: ErrorCollector, *, stories_limit: int) -> None:
    """Check that stories and waves are lists of mappings, and neither empty nor too long.

    Raises:
        ConfigurationError: They are not; the message contains all errors.
    """
    if dialect == "waves":
        _check_list(document["waves"], ("waves",), "waves", complaints)
    for items, path, _ in _lists(document, dialect):
        _check_list(items, path, "features" if isinstance(document, list) else "stories", complaints)
    complaints.raise_any()
    count = sum(1 for _ in entries(document, dialect))
    if count > stories_limit:
        complaints.add((), f"it has {count} stories, at most {stories_limit} are allowed; split it")
    complaints.raise_any()


def _lists(document: Any, dialect: Dialect) -> Iterator[tuple[Any, KeyPath, int | None]]:
    """Yield each value that should be a list of stories, its path, and the index of its wave."""
    if isinstance(document, list):
        yield document, (), None
    elif dialect != "waves":
        key = next(key for key in DIALECT_BY_KEY if document.get(key) is not None)
        yield document[key], (key,), None
    elif isinstance(document["waves"], list):
        for number, wave in enumerate(document["waves"]):
            if isinstance(wave, dict):
                yield wave.get("stories"), ("waves", number, "stories"), number


def _check_list(value: Any, path: KeyPath, of: str, complaints: ErrorCollector) -> None:
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
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
    """Return whether a document with the key `stories` is in the dialect that keeps progress in `status`."""
    stories = document["stories"]
    items = [item for item in stories if isinstance(item, dict)] if isinstance(stories, list) else []
    if any("passes" in item for item in items):
        return False
    if isinstance(document.get("context"), dict) or "adrs" in document:
        return True
    return any("status" in item for item in items)
