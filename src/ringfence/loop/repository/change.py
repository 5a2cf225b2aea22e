"""Checks the files that a story writes or removes, and refuses changes that no commit may contain.

Refused are files that git, on this or another system, would take for its own, links that lead out of the repository,
and changes that are too large for a person or a git server.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ringfence.frozen import frozen
from ringfence.loop.repository.refusal import NothingChanged, WorkRefused
from ringfence.sandbox.workspace.snapshot.diff import Diff
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore
from ringfence.sandbox.workspace.snapshot.walk import NO_FILE

MOST_FILE_BYTES = 50 * 1024**2
MOST_BYTES = 200 * 1024**2
MOST_FILES = 5_000
"""Limit for all files that one attempt writes."""
_READ_BYTES = 512 * 1024**2
_READ_FILES = 200_000
_LINK = 0o120000
_MODES = frozenset({0o100644, 0o100755, _LINK})
_MOST_PATH_BYTES = 1024
"""Limit for a path: no file system accepts longer ones, and there must be room for the path of a clone before it."""
_MOST_NAME_BYTES = 255
_MOST_TARGET_BYTES = 4096
_ATTRIBUTES_LINE = 2048
_ATTRIBUTES_BYTES = 100 * 1024**2
"""git fsck refuses a `.gitattributes` that is longer or has longer lines."""
_HFS_IGNORED = re.compile(
    "[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]"  # HFS+ leaves these out of names (git's utf8.c)
)
_HFS_END = re.compile("[\ud800-\udfff\ufffd-\uffff]")
"""Characters at which git ends a name that it compares as HFS+ does: bytes that are not UTF-8 (decoded, one of these),
U+FFFE and U+FFFF (`pick_one_utf8_char` and `is_hfs_dot_generic` in git's utf8.c)."""
_SHORT_GIT = re.compile(r"git~\d+")


def _short(start: str, hashed: str) -> re.Pattern[str]:
    """Short names that Windows may give to git's files, as listed by git (`is_ntfs_dot_generic` in its path.c)."""
    cut = (rf"{hashed[:length]}~[1-9]\d{{{6 - length}}}" for length in range(7))
    return re.compile("|".join((rf"{start}~\d+", rf"gi[{hashed[2:]}]{{0,4}}~\d+", *cut)))


_SHORT_MODULES = _short("gitmod", "gi7eba")
_SHORT_ATTRIBUTES = _short("gitatt", "gi7d29")


@frozen
class Change:
    """A file that a story writes or removes."""

    path: bytes
    """Path relative to the top of the repository."""
    git_mode: int | None
    """0o100644, 0o100755 or 0o120000 (a link); None: the file is removed."""
    data: bytes = b""
    """Contents, or the target of a link."""
    object_id: str | None = None
    """The id of contents that the loop's repository already has; `data` is then empty."""


async def changes_between(
    store: SnapshotStore, before: str, after: str, diff: Diff | None = None
) -> list[Change]:
    """Return the changes that a run made, from its checkpoints.

    Args:
        store: The store of the run's workspace.
        before: The checkpoint before the agent's work.
        after: The checkpoint after it.
        diff: Their comparison, if the caller has it.

    Raises:
        WorkRefused: They exceed 200,000 files or 512 MiB, or the checkpoint does not hold some files.
    """
    lost = await _not_held(store, before, after)
    if lost:
        raise WorkRefused(lost)
    blobs, gone = await store.changes(before, after, diff=diff)
    size, count = sum(blob.size for blob in blobs), len(blobs) + len(gone)
    if size > _READ_BYTES or count > _READ_FILES:
        raise WorkRefused(
            {"*": f"{count} files of {size} bytes changed, of {_READ_FILES} and {_READ_BYTES} at most"}
        )
    changes = [Change(path, None) for path in gone]
    async for batch in store.contents(blobs):
        changes += [Change(blob.path, blob.git_mode, data) for blob, data in batch]
    return sorted(changes, key=lambda change: change.path)


async def _not_held(store: SnapshotStore, before: str, after: str) -> dict[str, str]:
    """Files and directories with changes that the run's checkpoint, and so a commit, cannot hold, and why."""
    old, new = await store.memo(before), await store.memo(after)
    return {
        os.fsdecode(path): f"it cannot be taken over: {why}"
        for path, why in new.skipped.items()
        if why != NO_FILE and (old.skipped.get(path), old.marks.get(path)) != (why, new.marks.get(path))
    }


def check_size(changes: Sequence[Change]) -> None:
    """Check that the changes of an attempt have a size that a person can review and git servers accept.

    Raises:
        WorkRefused: A file, all files together or their number exceed the limits.
    """
    written = [change for change in changes if change.git_mode is not None]
    reasons = {
        os.fsdecode(change.path): f"it has {len(change.data)} bytes, of {MOST_FILE_BYTES} at most"
        for change in written
        if len(change.data) > MOST_FILE_BYTES
    }
    size = sum(len(change.data) for change in written)
    if len(written) > MOST_FILES or size > MOST_BYTES:
        written_size = f"the attempt writes {len(written)} files with {size} bytes in all"
        reasons["*"] = f"{written_size}; the limits are {MOST_FILES} files and {MOST_BYTES} bytes"
    if reasons:
        raise WorkRefused(reasons)


def check_links(changes: Sequence[Change]) -> None:
    """Check that no symbolic link leads out of the repository.

    Raises:
        WorkRefused: Some do.
    """
    reasons = {
        os.fsdecode(change.path): why
        for change in changes
        if change.git_mode == _LINK and (why := _why_not_link(change.path, change.data)) is not None
    }
    if reasons:
        raise WorkRefused(reasons)


def check_changes(changes: Sequence[Change], *, control: Collection[bytes] = ()) -> None:
    """Check that changes may be committed.

    Raises:
        NothingChanged: There are none.
        WorkRefused: Some may not.
    """
    if not changes:
        raise NothingChanged("nothing was changed, so there is nothing to commit")
    reasons: dict[bytes, str] = {}
    seen: set[bytes] = set()
    for change in changes:
        why = _why_not_path(change.path, control=control) or _why_not_kind(change)
        if change.path in seen:
            why = why or "it is named twice"
        seen.add(change.path)
        if why is not None:
            reasons[change.path] = why
    written = [change.path for change in changes if change.git_mode is not None]
    reasons |= dict.fromkeys(_in_each_others_way(written), "it would be below a file") | reasons
    if reasons:
        raise WorkRefused({os.fsdecode(path): reasons[path] for path in sorted(reasons)})


def _why_not_kind(change: Change) -> str | None:
    if change.git_mode is None:
        return None
    if change.git_mode == 0o160000:
        return "it is a submodule, which a story cannot add"
    if change.git_mode not in _MODES:
        return f"it is neither a file nor a link (mode {change.git_mode:o})"
    if change.git_mode == _LINK and (
        not change.data or b"\0" in change.data or len(change.data) > _MOST_TARGET_BYTES
    ):
        return "it is a link to what cannot be a path"
    return _why_not_contents(change.path, change.data)


def _why_not_path(path: bytes, *, control: Collection[bytes] = ()) -> str | None:
    """Why a path is not committed; None if it may be.

    Args:
        path: Path relative to the top of the repository.
        control: Files of the loop itself, and directories, that no story may change.
    """
    if not path or len(path) > _MOST_PATH_BYTES or b"\0" in path:
        return f"it is empty, or longer than {_MOST_PATH_BYTES} bytes"
    if path.startswith(b"/"):
        return "it is absolute"
    *above, _ = path.split(b"/")
    for part in path.split(b"/"):
        why = _why_not_part(part)
        if why is not None:
            return why
    if any(is_attributes(part.decode("utf-8", "replace")) for part in above):
        return "git takes it for a file of attributes, and refuses a directory of that name"
    if any(path == one or path.startswith(one.rstrip(b"/") + b"/") for one in control):
        return "it is a file of the loop itself"
    return None


def _why_not_link(path: bytes, target: bytes) -> str | None:
    """Why a symbolic link is not committed: if it led out of the repository, it would lead to files of the user.

    A target may go up (`..`) only at its start: after a name, the kind of that file decides where it leads.
    """
    if not target or b"\0" in target or len(target) > _MOST_TARGET_BYTES:
        return "it is a link to what cannot be a path"
    # Windows treats a backslash as a slash, and a letter with a colon as a drive.
    parts = [part for part in re.split(rb"[\\/]", target) if part != b"."]
    shown = os.fsdecode(target[:_MOST_NAME_BYTES])
    if parts[:1] == [b""] or target[1:2] == b":":
        return (
            f"it is a link that leads out of the repository, to {shown!r}; a target is relative to the link"
        )
    names = [part for part in parts if part]
    up = next((number for number, part in enumerate(names) if part != b".."), len(names))
    if b".." in names[up:] or up > path.count(b"/"):
        return f"it is a link that leads out of the repository, or may: to {shown!r}"
    if any(is_git(part.decode("utf-8", "replace")) for part in names):
        return f"it is a link to git's own directory: to {shown!r}"
    return None


def _why_not_part(part: bytes) -> str | None:
    if part in {b"", b".", b".."}:
        return "it leads out of the repository, or is no plain path"
    if len(part) > _MOST_NAME_BYTES:
        return "a part of it is longer than a name can be"
    # Windows treats a backslash as a slash, and text after a colon as a stream of the file.
    names = re.split(r"[\\/]", part.decode("utf-8", "replace"))
    if any(is_git(name) for name in names):
        return "it is, or lies in, what git on some system takes for its own directory"
    if any(is_modules(name) for name in names):
        return "submodules are not a story's to change"
    return None


def is_git(name: str) -> bool:
    """Whether some file system takes this for `.git`: upper case, trailing dots, short names, ignored characters."""
    plain = _plain(name)
    return plain == ".git" or bool(_SHORT_GIT.fullmatch(plain))


def is_modules(name: str) -> bool:
    """Whether some file system takes this for `.gitmodules`."""
    plain = _plain(name)
    return plain == ".gitmodules" or bool(_SHORT_MODULES.fullmatch(plain))


def is_attributes(name: str) -> bool:
    """Whether some file system takes this for `.gitattributes`."""
    plain = _plain(name)
    return plain == ".gitattributes" or bool(_SHORT_ATTRIBUTES.fullmatch(plain))


def _plain(name: str) -> str:
    return _HFS_END.split(_HFS_IGNORED.sub("", name))[0].partition(":")[0].rstrip(". ").lower()


def _in_each_others_way(paths: Iterable[bytes]) -> set[bytes]:
    """Paths that would be a file and a directory at once."""
    every = set(paths)
    return {path for path in every if any(parent in every for parent in parents(path))}


def parents(path: bytes) -> Iterator[bytes]:
    """The directories above a path, from the top."""
    parts = path.split(b"/")
    return (b"/".join(parts[:depth]) for depth in range(1, len(parts)))


def _why_not_contents(path: bytes, data: bytes) -> str | None:
    """Why a file's contents are not committed, if git would later refuse to import them."""
    if not is_attributes(path.rpartition(b"/")[2].decode("utf-8", "replace")):
        return None
    if any(len(line) >= _ATTRIBUTES_LINE for line in data.split(b"\n")):
        return f"it has a line of {_ATTRIBUTES_LINE} bytes or more, which git refuses"
    if len(data) > _ATTRIBUTES_BYTES:
        return f"it is larger than {_ATTRIBUTES_BYTES} bytes, which git refuses"
    return None
