"""Compares two snapshots file by file: by git's trees, and by data that no patch can show."""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Literal

from ringfence.errors import RingfenceError
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached
from ringfence.sandbox.workspace.snapshot.memo import MAX_MARKS, Mark, Memo, lies_in
from ringfence.sandbox.workspace.snapshot.objects import quoted
from ringfence.sandbox.workspace.snapshot.patch import unquote
from ringfence.sandbox.workspace.snapshot.walk import ELSEWHERE

ChangeKind = Literal["added", "modified", "deleted", "typechange"]
UnkeptKind = Literal["added", "modified", "deleted", "unseen"]
_KINDS: dict[bytes, ChangeKind] = {b"A": "added", b"M": "modified", b"D": "deleted", b"T": "typechange"}
_OPTIONS = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv")
_ATTEMPTS = ("8m", 20.0), ("64k", 20.0), ("1", 120.0)
"""Values of core.bigFileThreshold, of which the last makes git treat every file as binary, and seconds for each
attempt: many files of many lines, each below the threshold, take git minutes."""
_IGNORED = "ignored by git"
_UNSAFE = re.compile(rb"[*?\[\\]")
"""Characters with a special meaning in a pattern of attributes."""
_RULE_BYTES, _RULES_BYTES = 2000, 50 * 1024**2
"""Git ignores longer lines, and files of more than 100 MiB."""


class PatchTooLarge(RingfenceError):
    """A patch is larger than what is kept; the snapshots still hold the changes."""


@frozen
class FileChange:
    """One file that differs."""

    path: str
    """Path relative to the workspace; bytes that are not UTF-8 are surrogate escapes."""
    kind: ChangeKind
    insertions: int
    deletions: int
    binary: bool
    mode_changed: bool
    """Whether the executable bit or the kind of file changed."""
    mode: int = 0
    """Git's mode of the file after the change; 0 if it was deleted."""
    id: str = ""
    """The object id of the contents after the change; zeros if the file was deleted."""

    @property
    def raw_path(self) -> bytes:
        """The path as it is on disk."""
        return os.fsencode(self.path)


@frozen
class UnkeptChange:
    """A changed file whose contents are not kept, or a directory that could not be examined."""

    path: str
    """Path relative to the workspace; directories end in a slash; `./` means any place."""
    kind: UnkeptKind
    why: str
    """Why it is not kept."""
    size_before: int | None = None
    size_after: int | None = None

    def __str__(self) -> str:
        sizes = [f"{size} bytes" for size in (self.size_before, self.size_after) if size is not None]
        return f"{self.path!r} {self.kind}{': ' if sizes else ''}{', now '.join(sizes)} ({self.why})"


@frozen
class Diff:
    """The differences between two snapshots."""

    files: tuple[FileChange, ...] = ()
    unkept: tuple[UnkeptChange, ...] = ()
    """Changes that are in no patch; `with_unkept` adds them."""
    lost: tuple[FileChange, ...] = ()
    """Files that only the earlier snapshot holds, as the later one could not read them: they are in `unkept`, too."""

    @property
    def entries(self) -> list[tuple[bytes, int, str]]:
        """Path, mode and object id of each file whose entry differs, as in the later snapshot; mode 0: it has none."""
        return [(change.raw_path, change.mode, change.id) for change in (*self.files, *self.lost)]

    @property
    def insertions(self) -> int:
        """Lines added in all text files."""
        return sum(change.insertions for change in self.files)

    @property
    def deletions(self) -> int:
        """Lines removed in all text files."""
        return sum(change.deletions for change in self.files)


async def compare_trees(git: Git, earlier: str, later: str, *, output_limit_bytes: int) -> bytes:
    """Return the input of `parse_diff`; without numbers of lines if counting them exceeds git's memory or time.

    Raises:
        GitBoundReached: The output is too long, or git took too long even without counting lines.
    """
    *finer, last = _ATTEMPTS
    compare = partial(_compare, git, earlier, later, output_limit_bytes)
    for threshold, limit_s in finer:
        try:
            return await compare(threshold, limit_s)
        except GitBoundReached as exc:
            if exc.bound == "output":
                raise
    return await compare(*last)


async def _compare(
    git: Git, earlier: str, later: str, output_limit_bytes: int, threshold: str, limit_s: float
) -> bytes:
    attempt = replace(git, options=(*git.options, f"core.bigFileThreshold={threshold}"))
    answer = await attempt.run(
        "diff-tree", *_OPTIONS, earlier, later, timeout_s=limit_s, output_limit_bytes=output_limit_bytes
    )
    return answer.stdout


def parse_diff(output: bytes) -> Diff:
    """Read the output of `git diff-tree -r -z --raw --numstat --no-renames`."""
    fields = output.split(b"\0")
    raw: dict[bytes, tuple[ChangeKind, bool, int, str]] = {}
    position = 0
    while position + 1 < len(fields) and fields[position].startswith(b":"):
        old_mode, new_mode, _, name, letter = fields[position][1:].split(b" ")
        changed = b"000000" not in (old_mode, new_mode) and old_mode != new_mode
        raw[fields[position + 1]] = _KINDS[letter[:1]], changed, int(new_mode, 8), name.decode()
        position += 2
    changes = []
    for line in fields[position:]:
        if not line:
            continue
        inserted, deleted, path = line.split(b"\t", 2)
        kind, mode_changed, mode, name_after = raw[path]
        binary = inserted == b"-"
        counts = (0, 0) if binary else (int(inserted), int(deleted))
        changes.append(FileChange(os.fsdecode(path), kind, *counts, binary, mode_changed, mode, name_after))
    return Diff(tuple(changes))


def parse_diff_and_patch(output: bytes) -> tuple[Diff, bytes]:
    """Parse the output of `git diff-tree -r -p --raw --numstat --no-renames`: the changes, and the patch.

    Without `-z`, which would write names into the patch as they are, line ends included.
    """
    raw, position = [], 0
    while output.startswith(b":", position):
        end = output.index(b"\n", position)
        head, path = output[position:end].split(b"\t", 1)
        raw.append(head + b"\0" + unquote(path) + b"\0")
        position = end + 1
    counts = []
    while position < len(output) and not output.startswith(b"\n", position):
        end = output.index(b"\n", position)
        inserted, deleted, path = output[position:end].split(b"\t", 2)
        counts.append(b"\t".join((inserted, deleted, unquote(path))) + b"\0")
        position = end + 1
    return parse_diff(b"".join((*raw, *counts))), output[position + 1 :]


def without_lines(paths: Iterable[bytes]) -> bytes:
    """Rules for `info/attributes` that make git compare these files as binary, or every file if a path is too long."""
    patterns = (_UNSAFE.sub(rb"\\\g<0>", path) for path in paths)
    rules = [quoted(b"/" + pattern) + b" -diff\n" for pattern in patterns]
    is_short = all(len(rule) < _RULE_BYTES for rule in rules) and sum(map(len, rules)) < _RULES_BYTES
    return b"".join(rules) if is_short else b"* -diff\n"


def with_unkept(diff: Diff, before: Memo, after: Memo) -> Diff:
    """Add changes that no patch can show: to files whose contents are not kept, and in directories that were not read.

    A file that the later snapshot could not keep is not deleted: it is reported as changed.
    """
    places = {path: why for path, why in after.skipped.items() if path != ELSEWHERE}
    lost = [c for c in diff.files if c.kind == "deleted" and lies_in(c.raw_path, places)]
    gone = {change.raw_path for change in lost}
    files = tuple(change for change in diff.files if change.raw_path not in gone)
    reported = {change.raw_path for change in diff.files}
    unkept = [_lost_change(change, after) for change in lost]
    unkept += [
        change
        for path in before.marks.keys() | after.marks.keys()
        if path not in reported and (change := _compare_marks(path, before, after)) is not None
    ]
    unkept += [
        UnkeptChange(os.fsdecode(path), "unseen", why)
        for path, why in after.skipped.items()
        if path.endswith(b"/") and path not in before.skipped
    ]
    if MAX_MARKS in (len(before.marks), len(after.marks)):
        unkept.append(UnkeptChange("./", "unseen", f"more than {MAX_MARKS} files are not kept"))
    return replace(diff, files=files, unkept=tuple(sorted(unkept, key=_rank)), lost=tuple(lost))


def _rank(change: UnkeptChange) -> tuple[bool, str]:
    # First the note that the list is incomplete, which would be overlooked at the end of many lines.
    return os.fsencode(change.path) != ELSEWHERE, change.path


def _compare_marks(path: bytes, before: Memo, after: Memo) -> UnkeptChange | None:
    old, new = before.marks.get(path), after.marks.get(path)
    if old == new or (new is None and lies_in(path, after.skipped)):
        return None
    kind: UnkeptKind = "added" if old is None else "deleted" if new is None else "modified"
    why = after.skipped.get(path) or before.skipped.get(path) or _IGNORED
    return UnkeptChange(os.fsdecode(path), kind, why, size_before=_size(old), size_after=_size(new))


def _lost_change(change: FileChange, after: Memo) -> UnkeptChange:
    """A file that the earlier snapshot holds and the later one could not read."""
    new = after.marks.get(change.raw_path)
    why = after.skipped.get(change.raw_path, "its directory could not be read")
    return UnkeptChange(change.path, "modified", why, size_after=_size(new))


def _size(mark: Mark | None) -> int | None:
    return None if mark is None else mark.size
