"""What is frozen, what is compared, and what is said about it."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from ringfence.check.freeze.places import is_test_path
from ringfence.frozen import frozen

Runner = Literal["pytest", "unittest", "node", "go", "cargo", "maven"]

Rule = Literal[
    "path",
    "test_changed",
    "test_deleted",
    "test_replaced",
    "new_test",
    "runner_config",
    "check_config",
    "shadow",
    "case",
    "runner_import",
    "asks_for_tests",
]
"""Each can be allowed by name (`Guard.allowed`)."""

REGULAR = 0o100644
SYMLINK = 0o120000
_KIND = 0o170000


@frozen
class Item:
    """One entry of a tree, as git has it."""

    data: bytes
    """A file's contents, or where a symbolic link leads to."""
    mode: int = REGULAR
    """Git's: `0o100644`, `0o100755`, `0o120000` (symbolic link) or `0o160000` (another repository)."""

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.mode & _KIND == REGULAR & _KIND


Read = Callable[[str], Item | None]
"""The entry at a path of a tree; None: there is no file there. Bytes that are no UTF-8 are surrogate escapes."""


class Changed(Protocol):
    """One path that differs between two trees; a renamed file is two. `sandbox.workspace.FileChange` is one."""

    @property
    def path(self) -> str:
        """Relative to the top of the tree, with slashes."""


@frozen
class Guard:
    """What runs the checks, and what an implementor may do all the same."""

    runners: frozenset[str] = frozenset()
    """Of the checks, see `Runner`; empty: not known, so that every runner's conventions count."""
    commands: tuple[str, ...] = ()
    """Of the checks. Files and targets that they name are guarded."""
    allowed: frozenset[str] = frozenset()
    """Rules that do not reject."""
    tests: tuple[str, ...] = ()
    """Patterns of paths that are tests besides, as of a shell; `*` stands for slashes, too."""
    scripts: frozenset[str] = frozenset()
    """Files that the commands lead to by way of others, see `with_scripts`."""
    to_build: frozenset[str] = frozenset()
    """Files that are to be written, though a command names them: the product itself."""

    def uses(self, *runners: Runner) -> bool:
        """Whether one of them may be what runs the tests."""
        return not self.runners or any(runner in self.runners for runner in runners)

    def is_test(self, path: str) -> bool:
        """Whether it is a test file, or lies where tests keep their data."""
        return is_test_path(path, self.runners) or any(fnmatchcase(path, pattern) for pattern in self.tests)


Kind = Literal["test", "runner_config", "check_config"]
MOST_BYTES = 4 << 20
"""A larger file is compared whole."""


@frozen
class FrozenFile:
    """A file that only the test writer may change."""

    sha256: str
    """Of the whole file, or of that part of it that says how checks run."""
    mode: int
    kind: Kind
    is_whole: bool
    """Whether all of the file is frozen."""


@frozen
class Frozen:
    """The files that an implementor must leave as they are, by their paths."""

    files: Mapping[str, FrozenFile] = field(default_factory=dict)

    def __contains__(self, path: object) -> bool:
        return path in self.files

    @property
    def tests(self) -> Collection[str]:
        """Paths of files that are frozen whole: these a gate restores."""
        return [path for path, file in self.files.items() if file.is_whole]


@frozen
class Tampering:
    """What an attempt did that it must not."""

    path: str
    rule: Rule
    why: str

    def __str__(self) -> str:
        return f"{self.path!r} {self.why} ({self.rule})"


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
