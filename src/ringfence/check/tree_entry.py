"""One entry of a git tree, read as data."""

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
