"""Which files a story names, and which of them others have taken."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from ringfence.loop.story.bounds import PATH_CHARS
from ringfence.loop.story.words import is_plain, quoted

_PATTERN = frozenset("*?[{")


def within(text: str) -> str:
    """A path, or pattern, relative to the repository, without `.` and double slashes.

    Raises:
        ValueError: It leads out of the repository, or is no path.
    """
    path = PurePosixPath(text)
    if not text.strip() or len(text) > PATH_CHARS or not is_plain(text):
        raise ValueError(
            f"{quoted(text)} is no path of 1 to {PATH_CHARS} characters without control characters"
        )
    if path.is_absolute() or ".." in path.parts or text.startswith("~"):
        raise ValueError(
            f"{quoted(text)} leads out of the repository; write a path relative to its root, without '..'"
        )
    if ".git" in (part.lower() for part in path.parts):
        raise ValueError(f"{quoted(text)} is git's own; a story does not touch it")
    return str(path)


def names_path(named: Iterable[str], path: str) -> bool:
    """Whether a story's `files` name a path: itself, a directory above it, or a pattern that matches it or one above."""
    parts = PurePosixPath(path).parts
    places = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(each == "." or any(_matches(each, place) for place in places) for each in named)


def _matches(pattern: str, place: str) -> bool:
    return place == pattern or (not _PATTERN.isdisjoint(pattern) and fnmatchcase(place, pattern))


class Territory:
    """Files that are taken; a directory means all below it, a pattern all it could match."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, ...]] = set()
        self._above: set[tuple[str, ...]] = set()

    def take(self, paths: Iterable[str]) -> None:
        """Take files."""
        for path in paths:
            parts = _parts(path)
            self._taken.add(parts)
            self._above.update(parts[:length] for length in range(len(parts)))

    def holds_any(self, paths: Iterable[str]) -> bool:
        """Whether some file may be meant by these that is taken already."""
        return any(self._holds(_parts(path)) for path in paths)

    def _holds(self, parts: tuple[str, ...]) -> bool:
        return parts in self._above or any(parts[:length] in self._taken for length in range(len(parts) + 1))


def _parts(path: str) -> tuple[str, ...]:
    """Up to the first part that is a pattern."""
    parts = PurePosixPath(path).parts
    patterns = [number for number, part in enumerate(parts) if _PATTERN & set(part)]
    return parts[: patterns[0]] if patterns else parts
