"""Where a value came from."""

from pathlib import Path
from typing import Any, Literal

from ringfence.errors import ConfigurationError, RingfenceError, UsageError
from ringfence.frozen import frozen

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
