"""Flags changed files that the host runs or trusts because of their name, or that the user protects."""

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from ringfence.config.path_pattern import PathPatterns
from ringfence.sandbox.workspace.protect.auto_executed_files import AUTO_EXECUTED_FILES, AutoExecutedFile

_BY_NAME: dict[str, list[AutoExecutedFile]] = {}
for _entry in AUTO_EXECUTED_FILES:
    _BY_NAME.setdefault(_entry.path.casefold().rpartition("/")[2], []).append(_entry)
AUTO_EXECUTED_NAMES = frozenset(_BY_NAME)
"""Last parts of the paths that `is_auto_executed` can match; rows with a `*` are searched for in changes only."""
_STARRED = tuple(entry for entry in AUTO_EXECUTED_FILES if "*" in entry.path)
"""Rows whose name is a pattern, which matches in any directory."""


def matches_any(paths: Iterable[str], patterns: Collection[str]) -> list[str]:
    """The paths that match a pattern, as in `.gitignore`."""
    if not patterns:
        return []
    spec = PathPatterns(patterns)
    return [path for path in paths if spec.match(path)]


def _directories(*, anywhere: bool) -> frozenset[str]:
    """The directories that rows of the table lie in, in lower case."""
    rows = [entry.path.casefold().split("/") for entry in AUTO_EXECUTED_FILES if entry.anywhere is anywhere]
    return frozenset("/".join(row[:depth]) for row in rows for depth in range(1, len(row)))


_DIRECTORIES, _DIRECTORIES_ANYWHERE = _directories(anywhere=False), _directories(anywhere=True)


def flag(changed: Iterable[str]) -> list[str]:
    """The changed paths that the user's machine runs or trusts without the user's command."""
    paths = sorted(set(changed))
    repositories = _bare_repositories(paths)
    return [path for path in paths if _is_flagged(path, repositories)]


def _is_flagged(path: str, repositories: Collection[str]) -> bool:
    return is_auto_executed(path) or path in repositories or _is_in_place_of_directory(path)


def _is_in_place_of_directory(path: str) -> bool:
    """Whether a file or link replaces a directory of files that the host trusts: a link there leads to other files."""
    parts = path.casefold().split("/")
    return path.casefold() in _DIRECTORIES or any(
        "/".join(parts[depth:]) in _DIRECTORIES_ANYWHERE for depth in range(len(parts))
    )


def reason(path: str) -> str:
    """Why a path was flagged."""
    if any(part.casefold() == ".git" for part in path.split("/")):
        return "git runs hooks and programs that it names"
    entry = next((entry for entry in AUTO_EXECUTED_FILES if _matches(path, entry)), None)
    if entry is not None:
        return entry.because
    if _is_in_place_of_directory(path):
        return (
            "it is in the place of a directory whose files tools run or trust; a link there leads to others"
        )
    return "git takes the directory for a repository and runs programs that it names"


def is_auto_executed(path: str) -> bool:
    """Whether tools on the host run or trust a file at this path, or in this directory, because of its name."""
    # Case-insensitive file systems take `.GIT` for `.git`.
    parts = path.casefold().split("/")
    if ".git" in parts:
        return True
    rows = [entry for part in parts for entry in _BY_NAME.get(part, ())]
    return any(_matches(path, entry) for entry in (*rows, *_STARRED))


def is_read_only(path: str) -> bool:
    """Whether an agent must not write to a file at this path, or in this directory."""
    return any(entry.treatment == "read_only" and _matches(path, entry) for entry in AUTO_EXECUTED_FILES)


def _matches(path: str, entry: AutoExecutedFile) -> bool:
    parts, wanted = path.casefold().split("/"), entry.path.casefold().split("/")
    places = (
        range(len(parts) - len(wanted) + 1) if entry.anywhere else range(min(1, len(parts) - len(wanted) + 1))
    )
    if "*" in entry.path:
        return any(fnmatchcase(part, wanted[-1]) for part in parts)
    return any(parts[place : place + len(wanted)] == wanted for place in places)


def _bare_repositories(paths: Iterable[str]) -> set[str]:
    """HEAD and config of directories that git would take for a repository, regardless of their name."""
    folders = set()
    for path in paths:
        parts = path.split("/")
        if parts[-1] == "HEAD":
            folders.add("/".join(parts[:-1]))
        folders |= {
            "/".join(parts[:i]) for i, part in enumerate(parts[:-1]) if part in {"refs", "objects", "hooks"}
        }
    return {f"{folder}/{name}".lstrip("/") for folder in folders for name in ("HEAD", "config")}
