"""A file of configuration: its bytes, its plain values, and where each of them was written."""

import os
import stat
from pathlib import Path
from typing import Any

from ringfence.errors import ConfigurationError
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
