"""A commit of exactly the files that an agent changed, made without a work tree.

The same base, files, message and time give the same commit: a step that is done again after a crash makes no second.
"""

import hashlib
import os
from collections.abc import Collection, Sequence

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.loop.repository.paths import (
    MODES,
    in_each_others_way,
    why_not,
    why_not_contents,
    why_not_link,
)
from ringfence.loop.repository.refusal import NothingChanged, WorkRefused
from ringfence.loop.repository.slot import check_id
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.objects import quoted
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore
from ringfence.sandbox.workspace.snapshot.walk import NO_FILE

_REF = "refs/ringfence/candidate"
_AUTHOR = b"ringfence <ringfence@localhost>"
_MANY = 200
_MOST_BYTES = 512 * 1024**2
_MOST_FILES = 200_000
MOST_FILE_BYTES = 50 * 1024**2
MOST_BYTES = 200 * 1024**2
MOST_FILES = 5_000
"""Of what one attempt writes."""
_LINK = 0o120000
_LISTING_BYTES = 512 * 1024**2
_IMPORT_S = 600.0
_LAST_TIME_S = 2**40


@frozen
class Change:
    """A file that a story writes or removes."""

    path: bytes
    """Relative to the top of the repository."""
    git_mode: int | None
    """0o100644, 0o100755 or 0o120000 (a link); None: it is removed."""
    data: bytes = b""
    """Contents, or where a link leads."""


async def changes_between(store: SnapshotStore, before: str, after: str) -> list[Change]:
    """What a run changed, of its checkpoints.

    Args:
        store: Of the run's workspace.
        before: The checkpoint that the agent found.
        after: The one of what it left.

    Raises:
        WorkRefused: It is more than 200,000 files or 512 MiB, or there are files that the checkpoint does not hold.
    """
    lost = await _not_held(store, before, after)
    if lost:
        raise WorkRefused(lost)
    blobs, gone = await store.changes(before, after)
    size, count = sum(blob.size for blob in blobs), len(blobs) + len(gone)
    if size > _MOST_BYTES or count > _MOST_FILES:
        raise WorkRefused(
            {"*": f"{count} files of {size} bytes changed, of {_MOST_FILES} and {_MOST_BYTES} at most"}
        )
    changes = [Change(path, None) for path in gone]
    async for batch in store.contents(blobs):
        changes += [Change(blob.path, blob.git_mode, data) for blob, data in batch]
    return sorted(changes, key=lambda change: change.path)


async def _not_held(store: SnapshotStore, before: str, after: str) -> dict[str, str]:
    """Files, and directories, of which a run changed what its checkpoint cannot hold, and why: no commit would."""
    old, new = await store.memo(before), await store.memo(after)
    return {
        os.fsdecode(path): f"it cannot be taken over: {why}"
        for path, why in new.skipped.items()
        if why != NO_FILE and (old.skipped.get(path), old.marks.get(path)) != (why, new.marks.get(path))
    }


def check_size(changes: Sequence[Change]) -> None:
    """See that what an attempt writes is of a size that a person can look at, and that servers of git accept.

    Raises:
        WorkRefused: A file, all of them or their number are beyond the bounds.
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
    """See that no symbolic link leads out of the repository.

    Raises:
        WorkRefused: Some do.
    """
    reasons = {
        os.fsdecode(change.path): why
        for change in changes
        if change.git_mode == _LINK and (why := why_not_link(change.path, change.data)) is not None
    }
    if reasons:
        raise WorkRefused(reasons)


def check_changes(changes: Sequence[Change], *, control: Collection[bytes] = ()) -> None:
    """See that changes may be committed.

    Raises:
        NothingChanged: There are none.
        WorkRefused: Some may not.
    """
    if not changes:
        raise NothingChanged("nothing was changed, so there is nothing to commit")
    reasons: dict[bytes, str] = {}
    seen: set[bytes] = set()
    for change in changes:
        why = why_not(change.path, control=control) or _why_not_kind(change)
        if change.path in seen:
            why = why or "it is named twice"
        seen.add(change.path)
        if why is not None:
            reasons[change.path] = why
    written = [change.path for change in changes if change.git_mode is not None]
    reasons |= dict.fromkeys(in_each_others_way(written), "it would be below a file") | reasons
    if reasons:
        raise WorkRefused({os.fsdecode(path): reasons[path] for path in sorted(reasons)})


def _why_not_kind(change: Change) -> str | None:
    if change.git_mode is None:
        return None
    if change.git_mode == 0o160000:
        return "it is a submodule, which a story cannot add"
    if change.git_mode not in MODES:
        return f"it is neither a file nor a link (mode {change.git_mode:o})"
    if change.git_mode == 0o120000 and (not change.data or b"\0" in change.data or len(change.data) > 4096):
        return "it is a link to what cannot be a path"
    return why_not_contents(change.path, change.data)


async def make_candidate(git: Git, base: str, changes: Sequence[Change], *, message: bytes, at_s: int) -> str:
    """Commit changes on `base`; return the commit's id.

    Args:
        git: The slot's git directory, which has `base`; its work tree and index are not touched.
        base: The parent.
        changes: Checked by `check_changes`.
        message: Whole.
        at_s: The time of the commit, in seconds since the epoch.

    Raises:
        NothingChanged: The base has all of them already.
        WorkRefused: A change would remove or hide other files of the base.
        InfrastructureFault: Git failed.
    """
    if not 0 <= at_s < _LAST_TIME_S:
        raise UsageError(f"{at_s!r} is no time of a commit")
    stream = _stream(check_id(base), changes, message=message, stamp=_AUTHOR + b" %d +0000" % at_s)
    written = sum(change.git_mode is not None for change in changes)
    depth = ("--depth=0",) if written > _MANY else ()
    told = await git.run(
        "fast-import", "--quiet", "--force", "--date-format=raw", *depth, stdin=stream, timeout_s=_IMPORT_S
    )
    commit = told.stdout.decode("ascii", "replace").strip()
    await _check(git, base, check_id(commit), changes)
    return commit


def _stream(base: str, changes: Sequence[Change], *, message: bytes, stamp: bytes) -> bytes:
    parts = [
        b"feature done\n",
        b"commit %s\nmark :1\nauthor %s\ncommitter %s\n" % (_REF.encode(), stamp, stamp),
        b"data %d\n%s\nfrom %s\n" % (len(message), message, base.encode()),
    ]
    # What is removed goes first: a directory may become a file, or a file a directory.
    parts += [b"D %s\n" % quoted(change.path) for change in changes if change.git_mode is None]
    for change in changes:
        if change.git_mode is not None:
            parts.append(
                b"M %o inline %s\ndata %d\n" % (change.git_mode, quoted(change.path), len(change.data))
            )
            parts += [change.data, b"\n"]
    parts.append(b"\nget-mark :1\ndone\n")
    return b"".join(parts)


async def _check(git: Git, base: str, commit: str, changes: Sequence[Change]) -> None:
    """See that the commit differs from its base by the changes, and by nothing else."""
    rows = await differences(git, base, commit)
    if not rows:
        raise NothingChanged("what was changed is in the base already, so there is nothing to commit")
    algorithm = "sha256" if len(commit) == 64 else "sha1"
    wanted = {change.path: _told(change, algorithm) for change in changes}
    strange = {path: row for path, row in rows.items() if wanted.get(path) != row}
    if strange:
        raise WorkRefused(
            {
                os.fsdecode(path): "the changes do not fit the base: it would be removed or replaced unnamed"
                for path in sorted(strange)
            }
        )


def _told(change: Change, algorithm: str) -> tuple[int, str]:
    if change.git_mode is None:
        return 0, ""
    digest = hashlib.new(algorithm, b"blob %d\0" % len(change.data), usedforsecurity=False)
    digest.update(change.data)
    return change.git_mode, digest.hexdigest()


async def differences(git: Git, base: str, commit: str) -> dict[bytes, tuple[int, str]]:
    """Each path in which two commits differ, with its mode and id in the second; (0, "") where it is gone."""
    command = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", base, commit)
    told = await git.run(*command, timeout_s=_IMPORT_S, output_limit_bytes=_LISTING_BYTES)
    fields = told.stdout.split(b"\0")
    rows = {}
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, name, _ = head.split(b" ")
        rows[path] = (int(mode, 8), name.decode()) if mode != b"000000" else (0, "")
    return rows
