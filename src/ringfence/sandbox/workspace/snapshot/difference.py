"""What differs between two checkpoints, file by file."""

import os
import re
from collections.abc import Iterable
from typing import Literal

from ringfence.errors import RingfenceError
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.snapshot.fast_import import quoted

ChangeKind = Literal["added", "modified", "deleted", "typechange"]
UnkeptKind = Literal["added", "modified", "deleted", "unseen"]
_KINDS: dict[bytes, ChangeKind] = {b"A": "added", b"M": "modified", b"D": "deleted", b"T": "typechange"}
_UNSAFE = re.compile(rb"[*?\[\\]")
"""What is not itself in a pattern of attributes."""
_RULE_BYTES, _RULES_BYTES = 2000, 50 * 1024**2
"""Git ignores longer lines, and files of more than 100 MiB."""


class PatchTooLarge(RingfenceError):
    """A patch is larger than what is kept; the checkpoints hold the changes all the same."""


@frozen
class FileChange:
    """One file that differs."""

    path: str
    """Relative to the workspace; bytes that are no UTF-8 are surrogate escapes."""
    kind: ChangeKind
    insertions: int
    deletions: int
    binary: bool
    mode_changed: bool
    """Whether the executable bit or the kind of file changed."""

    @property
    def raw_path(self) -> bytes:
        """The path as it is on disk."""
        return os.fsencode(self.path)


@frozen
class UnkeptChange:
    """A file that differs though its contents are not kept, or a place that could not be looked at."""

    path: str
    """Relative to the workspace; directories end in a slash, `./` is anywhere."""
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
    """What differs between two checkpoints."""

    files: tuple[FileChange, ...] = ()
    unkept: tuple[UnkeptChange, ...] = ()
    """What is in no patch; only `diff_run` looks for it."""

    @property
    def insertions(self) -> int:
        """Lines added in all text files."""
        return sum(change.insertions for change in self.files)

    @property
    def deletions(self) -> int:
        """Lines removed in all text files."""
        return sum(change.deletions for change in self.files)


def without_lines(paths: Iterable[bytes]) -> bytes:
    """Rules for `info/attributes` by which git compares files as binary; every file where a path is too long."""
    patterns = (_UNSAFE.sub(rb"\\\g<0>", path) for path in paths)
    rules = [quoted(b"/" + pattern) + b" -diff\n" for pattern in patterns]
    is_short = all(len(rule) < _RULE_BYTES for rule in rules) and sum(map(len, rules)) < _RULES_BYTES
    return b"".join(rules) if is_short else b"* -diff\n"


def parse_entries(output: bytes) -> dict[str, tuple[int, str]]:
    """Mode and id that each changed file has afterwards, from what `parse_diff` reads; mode 0 where it is gone."""
    fields = output.split(b"\0")
    found, position = dict[str, tuple[int, str]](), 0
    while position + 1 < len(fields) and fields[position].startswith(b":"):
        _, mode, _, name, _ = fields[position][1:].split(b" ")
        found[os.fsdecode(fields[position + 1])] = int(mode, 8), name.decode()
        position += 2
    return found


def parse_diff(output: bytes) -> Diff:
    """Read what `git diff-tree -r -z --raw --numstat --no-renames` says."""
    fields = output.split(b"\0")
    raw: dict[bytes, tuple[ChangeKind, bool]] = {}
    position = 0
    while position + 1 < len(fields) and fields[position].startswith(b":"):
        old_mode, new_mode, _, _, letter = fields[position][1:].split(b" ")
        exists = b"000000" not in (old_mode, new_mode)
        raw[fields[position + 1]] = (_KINDS[letter[:1]], exists and old_mode != new_mode)
        position += 2
    changes = []
    for line in fields[position:]:
        if not line:
            continue
        inserted, deleted, path = line.split(b"\t", 2)
        kind, mode_changed = raw[path]
        binary = inserted == b"-"
        counts = (0, 0) if binary else (int(inserted), int(deleted))
        changes.append(FileChange(os.fsdecode(path), kind, *counts, binary=binary, mode_changed=mode_changed))
    return Diff(tuple(changes))
