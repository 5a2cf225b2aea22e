"""The types of values in settings, and their checks."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from ringfence.config.path_pattern import check_pattern
from ringfence.config.units import ByteCount, parse_size

MOST_LABELS = 32
"""The largest number of labels of a run."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_LABEL_CHARS = 256
_SMALLEST_MEMORY = 16 * 1024**2
"""With 4 MiB the kernel kills the guest process, with 8 MiB a small command works (Linux 6.18, Python 3.11)."""
_SMALLEST_DISK = 1024**2

_AnyPath = TypeVar("_AnyPath", str, Path)

Loosening = Literal["host_backend", "network", "egress", "auth_inject", "host_hooks"]
"""The loosenings that a file can name: `host_backend` lets a file set `sandbox.backend: host` or `fallback: host`,
`network` lets containers have a network, `egress` lets a file set `egress.allow: [open]`, `auth_inject` lets it set
`auth: inject`, and `host_hooks` lets an agent of a fleet have hooks that run outside of any sandbox."""


def no_boolean(value: Any) -> Any:
    """Refuse a boolean instead of a number.

    Raises:
        ValueError: The value is a boolean.
    """
    # Pydantic reads `true` as 1, which the author of a limit never means.
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    return value


def _check_memory(value: Any) -> int:
    """Refuse less memory than the guest process and one command need."""
    count = parse_size(value)
    if count < _SMALLEST_MEMORY:
        raise ValueError(
            f"{value!r} is out of range: a sandbox needs at least 16m, and a number without a unit counts bytes; write "
            "a size such as 512m or 2g"
        )
    return count


def _check_disk(value: Any) -> int:
    """Refuse less room on disk than the files need that nearly every command writes."""
    count = parse_size(value)
    if count < _SMALLEST_DISK:
        raise ValueError(
            f"{value!r} is out of range: workspace and home need room to grow by at least 1m, and a number without a "
            "unit counts bytes; write a size such as 512m or 2g"
        )
    return count


def _check_variable_name(value: str) -> str:
    if not _VARIABLE_NAME.fullmatch(value):
        raise ValueError(
            f"{value[:80]!r} is not the name of a variable; use letters, digits and '_', beginning with a letter or '_'"
        )
    return value


def text(value: str) -> str:
    """Refuse a text with a NUL character.

    Raises:
        ValueError: The text contains one.
    """
    if "\0" in value:
        raise ValueError("it contains a NUL character, which commands and environments cannot contain")
    return value


def absolute_path(value: _AnyPath) -> _AnyPath:
    """Check that a path, on the host or in the sandbox, is absolute and does not contain '..'.

    Raises:
        ValueError: It is relative or contains '..'.
    """
    path = PurePosixPath(value)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{str(value)!r} is not an absolute path without '..'")
    return value


def pattern_within(value: str) -> str:
    """Check that a pattern stays within the workspace, is well formed and within the limits.

    Raises:
        ValueError: It does not; the message gives the reason.
    """
    if value.startswith(("!", "/", "#")) or ".." in PurePosixPath(value).parts or not value.strip():
        raise ValueError(
            f"{value!r} is not a path pattern relative to the workspace; "
            "it must not start with '!', '/' or '#' or contain '..'"
        )
    check_pattern(value)
    return value


def labels(value: dict[str, str]) -> dict[str, str]:
    """Check the number, the keys and the values of the labels of a run.

    Raises:
        ValueError: There are too many labels, or a label is invalid.
    """
    if len(value) > MOST_LABELS:
        raise ValueError(f"{len(value)} labels are too many; give at most {MOST_LABELS}")
    for key, text in value.items():
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(
                f"{key[:80]!r} is not a label key; use up to 63 letters, digits and . _ / -, beginning with a letter "
                "or a digit"
            )
        if len(text) > _LABEL_CHARS or not text.isprintable():
            raise ValueError(
                f"the value of the label {key!r} must be at most {_LABEL_CHARS} printable characters"
            )
    return value


def distinct(names: Iterable[str]) -> None:
    """Check that all names are different.

    Raises:
        ValueError: A name occurs twice.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name!r} occurs twice")
        seen.add(name)


Count = Annotated[int, BeforeValidator(no_boolean), Field(gt=0, le=10**12)]
MemorySize = Annotated[ByteCount, BeforeValidator(_check_memory)]
DiskSize = Annotated[ByteCount, BeforeValidator(_check_disk)]
PositiveNumber = Annotated[float, BeforeValidator(no_boolean), Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, BeforeValidator(no_boolean), Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, AfterValidator(text), StringConstraints(min_length=1)]
Labels = Annotated[dict[str, str], AfterValidator(labels)]
VariableName = Annotated[
    str,
    AfterValidator(_check_variable_name),
    Field(json_schema_extra={"pattern": f"^{_VARIABLE_NAME.pattern}$"}),
]
ImportReference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
ProtectPattern = Annotated[Text, AfterValidator(pattern_within)]
