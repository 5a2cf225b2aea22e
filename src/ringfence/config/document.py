"""A file of configuration: where it is found, its bytes and plain values, and where each of them was written.

A project's file is searched upwards from the workspace, never as far as the home directory, never through a link.
"""

import os
import stat
from pathlib import Path
from typing import Any, Literal

from ringfence.errors import ConfigurationError, RingfenceError, UsageError
from ringfence.frozen import frozen

FILE_LIMIT_BYTES = 64 * 1024

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the root of a document to a value."""


@frozen
class Place:
    """A 1-based line and column."""

    line: int
    column: int


@frozen
class Document:
    """A file's values and where each was written."""

    file: Path
    content: bytes
    values: dict[str, Any]
    places: dict[KeyPath, Place]
    """Of values; the root's is `()`."""
    key_places: dict[KeyPath, Place]
    """Of the keys of mappings."""

    def place(self, path: KeyPath, *, of_key: bool = False) -> Place:
        """Where `path` was written; if it was not, the nearest of its parents."""
        if of_key and path in self.key_places:
            return self.key_places[path]
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def read_regular_file(file: Path, *, follow_link: bool = False, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
    """The bytes of a file of bounded size that is neither a link (unless followed), nor a pipe, nor a device.

    Raises:
        ConfigurationError: It is one of those, too large, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_link else os.O_NOFOLLOW)
    try:
        if not follow_link and file.is_symlink():
            raise ConfigurationError(
                "it is a symbolic link, which could lead outside the project; put the file itself there",
                file=file,
            )
        descriptor = os.open(file, flags)
    except OSError as exc:
        then = "name one that is there" if isinstance(exc, FileNotFoundError) else "mend or remove it"
        raise ConfigurationError(f"cannot be read: {exc.strerror}; {then}", file=file) from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigurationError("it is not a regular file; put one there, or name another", file=file)
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise ConfigurationError(
            f"it is larger than {limit_bytes} bytes, too large for a configuration; shorten it",
            file=file,
        )
    return content


OriginKind = Literal["flag", "environment", "project", "user", "default"]


@frozen
class Origin:
    """Where one effective value was said. Its text: a flag, a variable, `FILE:LINE:COLUMN`, or `default`."""

    kind: OriginKind
    name: str = ""
    """Of the flag or the environment variable."""
    file: Path | None = None
    line: int | None = None
    column: int | None = None

    @property
    def is_file(self) -> bool:
        """Whether a file said it, as against the user at this very call."""
        return self.file is not None

    def error(self, message: str) -> RingfenceError:
        """The error that blames this place: a wrong flag is wrong usage, all else wrong configuration."""
        if self.kind == "flag":
            return UsageError(f"{self.name}: {message}")
        if self.file is not None:
            return ConfigurationError(message, file=self.file, line=self.line, column=self.column)
        return ConfigurationError(f"{self.name}: {message}" if self.name else message)

    def data(self) -> dict[str, Any]:
        """As it is told to programs."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.file is not None:
            found |= {"file": str(self.file), "line": self.line, "column": self.column}
        return found | ({"name": self.name} if self.name else {})

    def __str__(self) -> str:
        if self.file is not None:
            return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return self.name or self.kind


DEFAULT = Origin("default")


PROJECT_FILE_NAME = "ringfence.yaml"


def find_project_file(workspace: Path) -> Path | None:
    """The nearest `ringfence.yaml` in the workspace or above it.

    The search ends before the home directory and before the root of the file system: what lies there belongs
    to no project. Directories above the workspace that everybody may write (`/tmp`) are passed over.

    Raises:
        ConfigurationError: There is a `ringfence.yml`, which would not be read.
    """
    start = workspace.resolve()
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises where there is none
    for directory in (start, *start.parents):
        if directory in (home, Path(directory.anchor)):
            return None
        if directory != start and _is_writable_by_all(directory):
            continue
        file = directory / PROJECT_FILE_NAME
        if os.path.lexists(file):
            return file
        misnamed = directory / "ringfence.yml"
        if os.path.lexists(misnamed):
            raise ConfigurationError(
                f"this name is not read; rename it to {PROJECT_FILE_NAME!r}", file=misnamed
            )
    return None


def _is_writable_by_all(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True
