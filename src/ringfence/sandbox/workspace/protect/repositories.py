"""Tracks git repositories that a run made in its workspace: later runs do not use them, and an undo removes them.

A `.git` that a run made is an agent's work, in whichever workspace it is found. It is remembered outside the workspace,
by device, inode and time of birth, as the workspace may be renamed, and the next one may be the directory around it. A
copy is another file: a user who has examined the repository and trusts it makes a copy. Before a run the absence of a
`.git` is stored, as a run that is killed cannot report what it made. An undo moves each whole repository into the run's
record and deletes nothing, as others may have put work into it since.
"""

import ctypes
import errno
import hashlib
import os
import secrets
import stat
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from ringfence.config.paths import make_private_dir, replace_state_file
from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.layout import has_git
from ringfence.sandbox.workspace.lock import read_holder
from ringfence.sandbox.workspace.tree import Tree

_FOLDER = "untrusted-git"
_EXPECTED_NONE = "none"
"""Suffix of the name of the file that says that a workspace had no `.git` when a run began."""
_ALL_WITHIN = "within"
"""Suffix of the name of the file that says that no repository below a workspace is used."""
_TAKEN_OUT = "undone-git"
_MAX_ONE_BY_ONE = 1000
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
_STATX_BYTES, _BTIME_AT = 256, 80
_ADVICE = (
    "to use it, look at it, hooks and config above all, and copy it: `cp -a .git .git.new && rm -r .git && mv .git.new"
    " .git`"
)


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    device: int
    inode: int
    run: str
    born_ns: int = 0
    """Time of birth; 0 if it is not known."""


def expect_no_git(workspace: Path, run: str, state: Path) -> None:
    """Record before a run that the workspace has no `.git`, if it has none.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    why_untrusted(workspace, state)  # first handles what a killed run left
    if not has_git(workspace):
        _write(_file(workspace, _EXPECTED_NONE, state), _Mark(0, 0, run))


def settle_git(workspace: Path, state: Path) -> None:
    """Remember a `.git` that appeared since `expect_no_git` as an agent's. Called when a run ends in any way.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    expectation = _file(workspace, _EXPECTED_NONE, state)
    expected = _read(expectation)
    if expected is not None:
        distrust(workspace, expected.run, state)
        expectation.unlink(missing_ok=True)


def distrust(around: Path, run: str, state: Path) -> None:
    """Remember the `.git` in a directory, if there is one, as made by `run`.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    mark = _mark_of(around / ".git", run)
    if mark is not None:
        _write(_file_of(mark, state), mark)


def distrust_all(workspace: Path, entries: Collection[str], *, run: str, state: Path) -> None:
    """Remember each `.git` that a run made in its workspace: a later run may be given the directory around one.

    If there are more than can be remembered, all repositories in the workspace are distrusted from now on.

    Args:
        workspace: The resolved path.
        entries: Paths in it, each of a `.git`.
        run: The run that made them.
        state: The state directory.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    for entry in sorted(entries, key=lambda path: (path.count("/"), path))[:_MAX_ONE_BY_ONE]:
        distrust((workspace / entry).parent, run, state)
    if len(entries) > _MAX_ONE_BY_ONE:
        _write(_file(workspace, _ALL_WITHIN, state), _Mark(0, 0, run))


def why_untrusted(workspace: Path, state: Path) -> str | None:
    """A note for the user about a `.git` that a run made; None if there is none, or another."""
    if not has_git(workspace):
        return None
    try:
        expected = _read(_file(workspace, _EXPECTED_NONE, state))
        if expected is not None:
            return _note_on_unrecorded(workspace, expected, state)
        found = _mark_of(workspace / ".git", "")
        if found is None:
            return None
        mark = _read(_file_of(found, state))
        floods = (_read(_file(above, _ALL_WITHIN, state)) for above in workspace.parents)
        if flood := next(filter(None, floods), None):
            return (
                f"the git repository is not used: run {flood.run!r} made more repositories around it than are"
                f" remembered one by one; move {str(workspace)!r} elsewhere if this one is yours"
            )
    except (OSError, msgspec.DecodeError) as exc:
        return (
            f"the git repository is not used: what is known of it in {str(state / _FOLDER)!r} cannot be read ({exc});"
            " look at the repository, then remove what is damaged there"
        )
    if mark is None or not _is_same(mark, found):
        return None
    return f"the git repository is not used: it was made by run {mark.run!r}; {_ADVICE}"


def _note_on_unrecorded(workspace: Path, expected: _Mark, state: Path) -> str:
    """The note on a repository that appeared during a run that is still active or was interrupted."""
    if read_holder(workspace, state) == expected.run:
        return f"the git repository is not used: run {expected.run!r}, which goes on, made it"
    settle_git(workspace, state)
    return (
        f"the git repository is not used: it came during run {expected.run!r}, or after it, and that run was"
        f" interrupted; {_ADVICE}"
    )


def _read(file: Path) -> _Mark | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Mark)
    except FileNotFoundError:
        return None


def _write(file: Path, mark: _Mark) -> None:
    replace_state_file(file, msgspec.json.encode(mark))


def _is_same(mark: _Mark, found: _Mark) -> bool:
    """Whether this is the same file: a reused inode number belongs to a file with a later time of birth."""
    is_born_with_it = 0 in (mark.born_ns, found.born_ns) or mark.born_ns == found.born_ns
    return (mark.device, mark.inode) == (found.device, found.inode) and is_born_with_it


def _mark_of(git: Path, run: str) -> _Mark | None:
    try:
        status = os.lstat(git)
    except OSError:
        return None
    return _Mark(status.st_dev, status.st_ino, run, _born_ns(git))


def _born_ns(path: Path) -> int:
    """The time of birth of a file, which `os` does not report; 0 if it is not available (statx(2))."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    with suppress(AttributeError, OSError):
        statx = ctypes.CDLL(None).statx
        if statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, answer) == 0:
            (known,) = struct.unpack_from("=I", answer, 0)
            seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_AT)
            return int(seconds) * 10**9 + int(nanoseconds) if known & _STATX_BTIME else 0
    return 0


def _file(workspace: Path, about: str, state: Path) -> Path:
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()
    return state / _FOLDER / f"{name}.{about}"


def _file_of(mark: _Mark, state: Path) -> Path:
    return state / _FOLDER / f"{mark.device:x}-{mark.inode:x}.json"


@frozen
class Retired:
    """The repositories that were moved, and those that could not be."""

    moved: tuple[tuple[str, str], ...] = ()
    """The former path of each `.git`, relative to the workspace, and its new path."""
    stuck: tuple[tuple[str, str], ...] = ()
    """Each `.git` that could not be moved, and why."""


def retire_repositories(workspace: Path, entries: Iterable[str], *, run_dir: Path, state: Path) -> Retired:
    """Move each `.git` that a run made out of the workspace.

    A repository that another has made in the same place since then is left alone and not reported.

    Args:
        workspace: The resolved path.
        entries: Paths in it.
        run_dir: The run's directory, to which they are moved. If it is on another file system, they stay in place under
        a name that git does not look for.
        state: The state directory.
    """
    moved, stuck = [], []
    for entry in entries:
        if why_untrusted((workspace / entry).parent, state) is None:
            continue
        try:
            moved.append((entry, str(_move(workspace, os.fsencode(entry), run_dir))))
        except (OSError, InfrastructureFault) as exc:
            stuck.append((entry, str(exc)))
    return Retired(tuple(moved), tuple(stuck))


def _move(workspace: Path, path: bytes, run_dir: Path) -> Path:
    folder = make_private_dir(run_dir / _TAKEN_OUT)
    target = folder / secrets.token_hex(4)
    with Tree(workspace, unlock=stat.S_IRWXU) as tree:
        status = tree.lstat(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            tree.directory(
                path
            )  # moving a directory requires the right to write in it, which is restored here
        parent, name = tree.parent(path)
        try:
            os.rename(name, target, src_dir_fd=parent)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
            aside = name + b".undone-" + os.fsencode(run_dir.name[-8:])
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
            return workspace / os.fsdecode(path.removesuffix(name) + aside)
        tree.close_below()
        tree.remove_empty_parents(path)
    return target
