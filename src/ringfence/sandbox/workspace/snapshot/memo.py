"""The data of a snapshot besides its tree."""

import os
import stat
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import RecordError
from ringfence.sandbox.workspace.protect.flags import is_read_only
from ringfence.sandbox.workspace.snapshot.ignore import Rules
from ringfence.sandbox.workspace.snapshot.walk import ELSEWHERE, Walk
from ringfence.sandbox.workspace.tree import Tree

MAX_MARKS = 20_000
_SHOWN = 20


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """Identifies a file whose contents are not kept: a different or changed file has a different mark."""

    inode: int
    size: int
    ctime_ns: int
    mode: int


class Memo(msgspec.Struct, frozen=True):
    """The data of a snapshot besides its tree."""

    tree: str
    rules: Rules = Rules()
    private: frozenset[bytes] = frozenset()
    """Files that only their owner could read; they are restored with these permissions."""
    git_entries: tuple[bytes, ...] = ()
    skipped: dict[bytes, str] = {}
    """Paths that are neither covered nor ignored, and why; directories end in a slash."""
    ignored: frozenset[bytes] = frozenset()
    """Paths that were ignored in the first snapshot of the chain; ignored directories end in a slash."""
    base: str | None = None
    """The snapshot that this one is compared with."""
    marks: dict[bytes, Mark] = {}
    """Marks of files that are not covered but watched: skipped files, and auto-executed ones."""

    def is_same(self, other: "Memo") -> bool:
        """Whether the snapshots are equal, including the files that they could not keep."""
        return (self.tree, self.skipped, self.marks) == (other.tree, other.skipped, other.marks)


def lies_in(path: bytes, places: Container[bytes]) -> bool:
    """Whether a file, or a directory above it (with a slash at the end), is among `places`."""
    end = len(path)
    while end > 0:
        if path[:end] in places:
            return True
        end = path.rfind(b"/", 0, end - 1) + 1
    return ELSEWHERE in places


def save_memo(store: Path, snapshot: str, memo: Memo) -> None:
    """Store the data of a snapshot."""
    folder = make_private_dir(store / "memo")
    (folder / snapshot).write_bytes(msgspec.msgpack.encode(memo))


def load_memo(store: Path, snapshot: str) -> Memo:
    """Load the data of a snapshot.

    Raises:
        RecordError: There is no such snapshot.
    """
    try:
        return msgspec.msgpack.decode((store / "memo" / snapshot).read_bytes(), type=Memo)
    except (OSError, msgspec.DecodeError) as exc:
        raise RecordError(
            f"checkpoint {snapshot!r} is not in {store}; `ringfence gc` removes old ones"
        ) from exc


def watched_paths(found: Walk, ignored: Container[bytes], covered: Container[bytes]) -> Iterator[bytes]:
    """Files whose contents are not kept, but whose changes are reported.

    In ignored directories (which hold third-party packages by the thousand) only files that are run, not files that
    are merely read, are included.
    """
    yield from (path for path in sorted(found.repositories, key=depth_of) if path not in covered)
    yield from (path for path in found.skipped if not path.endswith(b"/") and path not in found.repositories)
    # Shallow paths first: marks are bounded, and a flood of deep ones must not displace them.
    for path in sorted(found.trusted, key=depth_of):
        if path not in covered and path not in found.skipped:
            is_inside = lies_in(path.rpartition(b"/")[0] + b"/", ignored)
            if not is_inside or is_read_only(os.fsdecode(path)):
                yield path


def depth_of(path: bytes) -> tuple[int, bytes]:
    """Sort key that puts shallow paths first."""
    return path.count(b"/"), path


def marks_of(tree: Tree, paths: Iterable[bytes]) -> dict[bytes, Mark]:
    """The marks of the existing paths other than directories; at most `MAX_MARKS`."""
    marks: dict[bytes, Mark] = {}
    for path in paths:
        if len(marks) >= MAX_MARKS:
            break
        try:
            status = tree.lstat(path)
        except OSError:
            continue
        if status is not None and not stat.S_ISDIR(status.st_mode):
            marks[path] = mark_of(status)
    return marks


def mark_of(status: os.stat_result) -> Mark:
    """The mark of a file with this status."""
    return Mark(status.st_ino, status.st_size, status.st_ctime_ns, status.st_mode)


def list_names(paths: Sequence[bytes | str], *, most: int = _SHOWN) -> str:
    """The first few of these files, and how many more there are."""
    names = ", ".join(repr(os.fsdecode(path) or ".") for path in paths[:most])
    return f"{names} and {len(paths) - most} more" if len(paths) > most else names


def named_note(what: str, paths: Sequence[bytes | str], *, most: int = _SHOWN) -> tuple[str, ...]:
    """A note that names files; empty if there are none."""
    return (f"{what}: {list_names(paths, most=most)}",) if paths else ()


def unlocked_note(paths: Sequence[bytes]) -> tuple[str, ...]:
    """A note that names files whose permissions were restored; empty if there were none."""
    return named_note("restored the owner's permissions on", paths)
