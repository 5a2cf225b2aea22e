"""Changes that no patch can show: to files whose contents are not kept, and places that could not be looked at."""

import os
from dataclasses import replace

from ringfence.sandbox.workspace.snapshot.difference import Diff, FileChange, UnkeptChange, UnkeptKind
from ringfence.sandbox.workspace.snapshot.memo import MAX_MARKS, Mark, Memo, lies_in
from ringfence.sandbox.workspace.snapshot.survey import ELSEWHERE

_IGNORED = "ignored by git"


def with_unkept(diff: Diff, before: Memo, after: Memo) -> Diff:
    """Add to what differs between two checkpoints what differs beside them.

    A file that the later one could not keep is not gone: it is told as changed.
    """
    places = {path: why for path, why in after.skipped.items() if path != ELSEWHERE}
    lost = [c for c in diff.files if c.kind == "deleted" and lies_in(c.raw_path, places)]
    gone = {change.raw_path for change in lost}
    files = tuple(change for change in diff.files if change.raw_path not in gone)
    told = {change.raw_path for change in diff.files}
    unkept = [_modified(change, after) for change in lost]
    unkept += [
        change
        for path in before.marks.keys() | after.marks.keys()
        if path not in told and (change := _compare(path, before, after)) is not None
    ]
    unkept += [
        UnkeptChange(os.fsdecode(path), "unseen", why)
        for path, why in after.skipped.items()
        if path.endswith(b"/") and path not in before.skipped
    ]
    if MAX_MARKS in (len(before.marks), len(after.marks)):
        unkept.append(UnkeptChange("./", "unseen", f"more than {MAX_MARKS} files are not kept"))
    return replace(diff, files=files, unkept=tuple(sorted(unkept, key=_rank)))


def _rank(change: UnkeptChange) -> tuple[bool, str]:
    # First what says that the rest is not all: at the end of many lines nobody reads it.
    return os.fsencode(change.path) != ELSEWHERE, change.path


def _compare(path: bytes, before: Memo, after: Memo) -> UnkeptChange | None:
    old, new = before.marks.get(path), after.marks.get(path)
    if old == new or (new is None and lies_in(path, after.skipped)):
        return None
    kind: UnkeptKind = "added" if old is None else "deleted" if new is None else "modified"
    why = after.skipped.get(path) or before.skipped.get(path) or _IGNORED
    return UnkeptChange(os.fsdecode(path), kind, why, size_before=_size(old), size_after=_size(new))


def _modified(change: FileChange, after: Memo) -> UnkeptChange:
    """A file that was kept before and could not be after."""
    new = after.marks.get(change.raw_path)
    why = after.skipped.get(change.raw_path, "its directory could not be read")
    return UnkeptChange(change.path, "modified", why, size_after=_size(new))


def _size(mark: Mark | None) -> int | None:
    return None if mark is None else mark.size
