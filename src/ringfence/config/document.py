"""Configuration files: their search, their content and values, and the position of each value.

The project's file is searched from the workspace upwards. The search stops below the home directory, and links are not
followed.
"""

import os
import stat
from pathlib import Path
from typing import Any, Literal

from ringfence.errors import ConfigurationError, RingfenceError, UsageError
from ringfence.frozen import frozen

FILE_LIMIT_BYTES = 64 * 1024

KeyPath = tuple[str | int, ...]
"""The keys and list indices that lead from the root of a document to a value."""


@frozen
class Place:
    """A line and a column, both counted from 1."""

    line: int
    column: int


OriginKind = Literal["flag", "environment", "project", "user", "default"]


@frozen
class Origin:
    """The origin of an effective value. Its text is a flag, a variable, `FILE:LINE:COLUMN`, or `default`."""

    kind: OriginKind
    name: str = ""
    """The name of the flag or the environment variable."""
    file: Path | None = None
    line: int | None = None
    column: int | None = None
    path: KeyPath = ()
    """The path that the flag or the variable sets."""

    @property
    def is_file(self) -> bool:
        """Whether the value is from a file, and not from the user's flags or environment."""
        return self.file is not None

    def error_about(self, key: str, reason: str) -> RingfenceError:
        """Return an error about the value of a key, which is named only where the origin does not name it itself."""
        return self.error(reason if self.name and not self.is_file else f"{key}: {reason}")

    def error(self, message: str) -> RingfenceError:
        """Return an error about a value of this origin: a usage error for a flag, else a configuration error."""
        if self.kind == "flag":
            return UsageError(f"{self.name}: {message}")
        if self.file is not None:
            return ConfigurationError(message, file=self.file, line=self.line, column=self.column)
        return ConfigurationError(f"{self.name}: {message}" if self.name else message)

    def data(self) -> dict[str, Any]:
        """Return the origin as data for `--json`."""
        data: dict[str, Any] = {"kind": self.kind}
        if self.file is not None:
            data |= {"file": str(self.file), "line": self.line, "column": self.column}
        return data | ({"name": self.name} if self.name else {})

    def __str__(self) -> str:
        if self.file is not None:
            return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return self.name or self.kind


@frozen
class Document:
    """The values of a file, and the position of each."""

    file: Path
    content: bytes
    values: dict[str, Any]
    places: dict[KeyPath, Place]
    """The positions of the values; the path of the root is `()`."""
    key_places: dict[KeyPath, Place]
    """The positions of the keys of mappings."""

    def place(self, path: KeyPath, *, of_key: bool = False) -> Place:
        """Return the position of `path` or, if the file does not contain it, of its nearest parent."""
        if of_key and path in self.key_places:
            return self.key_places[path]
        while path not in self.places:
            path = path[:-1]
        return self.places[path]

    def origin(self, path: KeyPath, kind: OriginKind, *, of_key: bool = False) -> Origin:
        """Return the origin of the value, or the key, at `path`."""
        place = self.place(path, of_key=of_key)
        return Origin(kind, file=self.file, line=place.line, column=place.column)

    def error(self, path: KeyPath, message: str, *, of_key: bool = False) -> ConfigurationError:
        """Return an error with the position of `path`."""
        place = self.place(path, of_key=of_key)
        return ConfigurationError(message, file=self.file, line=place.line, column=place.column)


def read_regular_file(file: Path, *, follow_link: bool = False, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
    """Read a regular file of limited size.

    Raises:
        ConfigurationError: The file is a link (unless `follow_link`), a pipe or a device; it is too large; or it
            cannot be read.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_link else os.O_NOFOLLOW)
    try:
        if not follow_link and file.is_symlink():
            raise ConfigurationError(
                "it is a symbolic link, which could lead out of the project; replace it by the file",
                file=file,
            )
        descriptor = os.open(file, flags)
    except OSError as exc:
        advice = "name an existing file" if isinstance(exc, FileNotFoundError) else "repair or remove it"
        raise ConfigurationError(f"cannot be read: {exc.strerror}; {advice}", file=file) from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigurationError("it is not a regular file; replace it by one, or name another", file=file)
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise ConfigurationError(
            f"it is larger than {limit_bytes} bytes, the limit of a configuration file; shorten it",
            file=file,
        )
    return content


def decode_text(content: bytes, file: Path) -> str:
    """Decode the text of a file, without a byte order mark.

    Raises:
        ConfigurationError: The file is not UTF-8; the error has the position of the first invalid byte.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = content[: exc.start].decode("utf-8")
        line = before.count("\n") + 1
        raise ConfigurationError(
            f"byte {content[exc.start : exc.start + 1]!r} is not UTF-8; save the file as UTF-8",
            file=file,
            line=line,
            column=len(before) - before.rfind("\n"),
        ) from exc
    return text.removeprefix("\ufeff")


DEFAULT = Origin("default")


PROJECT_FILE_NAME = "ringfence.yaml"


def find_project_file(workspace: Path) -> Path | None:
    """Return the nearest `ringfence.yaml` in the workspace or above it.

    The search ends below the home directory and below the root of the file system, because files there belong to no
    project. Directories above the workspace that every user can write to (`/tmp`) are skipped.

    Raises:
        ConfigurationError: There is a `ringfence.yml`, which is not read.
    """
    start = workspace.resolve()
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises if there is none
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
                f"a file of this name is not read; rename it to {PROJECT_FILE_NAME!r}", file=misnamed
            )
    return None


def _is_writable_by_all(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True
