"""Prints changes to a workspace, and the result of applying or undoing them."""

import shlex
import sys
from typing import TYPE_CHECKING

import typer

from ringfence.cli.output import counted, notify
from ringfence.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ringfence.sandbox.workspace.git.merge import CommittedFile
    from ringfence.sandbox.workspace.restore import Restored
    from ringfence.sandbox.workspace.snapshot.diff import Diff, FileChange

_KEPT_SHOWN = 20
_UNKEPT_SHOWN = 100


def show_unkept(diff: "Diff") -> None:
    """Print the differences that are in no patch."""
    for unkept in diff.unkept[:_UNKEPT_SHOWN]:
        notify(f"in no patch: {unkept}")
    if len(diff.unkept) > _UNKEPT_SHOWN:
        notify(f"in no patch: {counted(len(diff.unkept) - _UNKEPT_SHOWN, 'more file')} like these")


def show_stat(diff: "Diff") -> None:
    """Print the files with their numbers of lines."""
    print_lines(_stat_line(change) for change in diff.files)


def show_committed(files: "Sequence[CommittedFile]") -> None:
    """Print the files that only commits change, on stderr, as stdout lists changes in the workspace."""
    for file in files[:_UNKEPT_SHOWN]:
        lines = "binary" if file.binary else f"+{file.insertions} -{file.deletions}"
        label = "in a commit before the last" if file.is_earlier else f"{file.kind:<10} {lines:<12}"
        notify(f"{label} {file.path}  (in {file.ref})")
    if len(files) > _UNKEPT_SHOWN:
        notify(f"{counted(len(files) - _UNKEPT_SHOWN, 'more file')} changed in commits only")


def show_patch(patch: bytes, *, raw: bool) -> None:
    """Print a patch unchanged, or for people: text files first, binary ones only by name and size."""
    if raw:
        sys.stdout.buffer.write(patch)
        return
    files = [_folded(file) for file in _files_of(patch.splitlines())]
    for lines, _ in sorted(files, key=lambda file: file[1]):
        for line in lines:
            typer.echo(visible(line.decode("utf-8", "replace")))


def _files_of(lines: "Iterable[bytes]") -> "Iterator[list[bytes]]":
    """The lines of a patch by file. No line of a file's contents begins like the first line of a file's part."""
    part: list[bytes] = []
    for line in lines:
        if line.startswith(b"diff --git ") and part:
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _folded(lines: list[bytes]) -> tuple[list[bytes], bool]:
    """The lines to show of a file's part of a patch, and whether the file is binary."""
    start = next((number for number, line in enumerate(lines) if line == b"GIT binary patch"), None)
    if start is None:
        return lines, False
    kind, _, size = lines[start + 1].partition(b" ") if start + 1 < len(lines) else (b"", b"", b"")
    what = b"%s bytes" % size if kind == b"literal" else b"changed"
    return [*lines[:start], b"binary file, %s; --raw shows it" % what], True


def _stat_line(change: "FileChange") -> str:
    lines = "binary" if change.binary else f"+{change.insertions} -{change.deletions}"
    return f"{change.kind:<10} {lines:<12} {change.path}"


def print_lines(lines: "Iterable[str]") -> None:
    """Print lines that contain names from a workspace."""
    for line in lines:
        typer.echo(visible(line, one_line=True))


def report_restored(verb: str, done: str, restored: "Restored", *, whose: str = "the run") -> None:
    """Print what was written to the workspace, and what was not."""
    from ringfence.sandbox.workspace.protect.flags import reason

    files, repositories = restored.diff.files, restored.repositories
    print_lines(f"{change.kind:<10} {change.path}" for change in files)
    not_done = f"NOT {done}"
    _notify_first(
        not_done,
        [
            f"{path!r}; what it held before could not be kept, so it is left as it is"
            for path in restored.kept
        ],
    )
    _notify_first(
        "left",
        [
            f"{path!r}, which {whose} made and nothing holds; remove it if you do not want it"
            for path in restored.left
        ],
    )
    _notify_first(
        "moved",
        [
            f"{path!r}, a repository that {whose} made, to {place!r}; remove it there if you do not want it"
            for path, place in repositories.moved
        ],
    )
    _notify_first(
        not_done,
        [
            f"{path!r}, a repository that {whose} made ({why}); git runs programs that it names: remove "
            f"it with `rm -rf {shlex.quote(path)}`"
            for path, why in repositories.stuck
        ],
    )
    _notify_first(
        not_done,
        [
            f"{path!r} ({reason(path)}), since no checkpoint holds what git ignores; look at it, and unless "
            f"it is yours remove it with `rm -rf {shlex.quote(path)}`"
            for path in restored.active
        ],
    )
    if files or not (restored.kept or repositories.moved or repositories.stuck or restored.active):
        typer.echo(f"{done}: {counted(len(files), 'file')}" if files else f"nothing to {verb}", err=True)


def _notify_first(label: str, lines: "Sequence[str]") -> None:
    """Print the first lines, and the number of further ones."""
    for line in lines[:_KEPT_SHOWN]:
        notify(f"{label}: {line}")
    if len(lines) > _KEPT_SHOWN:
        notify(f"{label}: {len(lines) - _KEPT_SHOWN:,} more like these")
