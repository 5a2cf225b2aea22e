"""Types and predicates for entries and paths of a git tree, which are hostile data: compared, never opened."""

import re
import unicodedata
from collections.abc import Callable

from ringfence.frozen import frozen

REGULAR = 0o100644
SYMLINK = 0o120000
_KIND = 0o170000


@frozen
class TreeEntry:
    """One entry of a tree, as git has it."""

    data: bytes
    """A file's contents, or the target of a symbolic link."""
    mode: int = REGULAR
    """Git's: `0o100644`, `0o100755`, `0o120000` (symbolic link) or `0o160000` (another repository)."""

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.mode & _KIND == REGULAR & _KIND


ReadEntry = Callable[[str], TreeEntry | None]
"""Returns the entry at a path of a tree; None: there is no file. Bytes that are not UTF-8 are surrogate escapes."""


_CACHES = frozenset(
    {
        *(
            "__pycache__",
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            ".hypothesis",
            ".tox",
            ".nox",
            ".pytype",
        ),
        *(".nyc_output", ".eslintcache", ".coverage", ".DS_Store"),
    }
)
_CACHE_FILES = re.compile(r".*\.py[co]|\.coverage\..*|npm-debug\.log.*", re.DOTALL)
_IGNORABLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def is_cache(path: str) -> bool:
    """Whether a file is a cache of a runner or a checker, which is part of no one's work."""
    return not _CACHES.isdisjoint(path.split("/")) or bool(_CACHE_FILES.fullmatch(path.rpartition("/")[2]))


def is_plain_path(path: str) -> bool:
    """Whether a path is relative, has no empty, `.` or `..` part, and does not lead into git's own directory."""
    parts = path.split("/")
    return (
        bool(path)
        and "\0" not in path
        and not any(part in ("", ".", "..") or _is_git(part) for part in parts)
    )


def _is_git(part: str) -> bool:
    """Whether some file system takes a name for `.git`, by case, invisible characters, dots, short names or streams."""
    return folded(part).split(":")[0].rstrip(". ") in (".git", "git~1")


def folded(text: str) -> str:
    """Return a name as file systems compare it that ignore case, Unicode normal forms or invisible characters."""
    if text.isascii():
        return text.lower().rstrip(". ")
    return _IGNORABLE.sub("", unicodedata.normalize("NFKC", text).casefold()).rstrip(". ")
