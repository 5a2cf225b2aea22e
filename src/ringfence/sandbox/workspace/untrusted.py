"""A `.git` that a run made in a workspace without one: an agent's work, which later runs leave alone.

Kept outside of the workspace, by device and inode. A copy is another file, so who looked at it and wants it
copies it. That there was none is written down before a run: one that is killed cannot say what it made.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.journal import is_alive
from ringfence.sandbox.workspace.git_layout import has_git

_ADVICE = (
    "to use it, look at it, hooks and config above all, and copy it: `cp -a .git .git.new && rm -r .git && mv .git.new"
    " .git`"
)


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    device: int
    inode: int
    run: str


def expect_no_git(workspace: Path, run: str, state: Path) -> None:
    """Write down, before a run, that the workspace has no `.git`, where it has none.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    why_untrusted(workspace, state)  # what a killed run left is dealt with first
    if not has_git(workspace):
        _write(_expectation(workspace, state), _Mark(0, 0, run))


def settle_git(workspace: Path, state: Path) -> None:
    """Remember a `.git` that has come since `expect_no_git` as an agent's. Called when a run ends, in whatever way.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    expectation = _expectation(workspace, state)
    expected = _read(expectation)
    if expected is not None:
        distrust(workspace, expected.run, state)
        expectation.unlink(missing_ok=True)


def distrust(workspace: Path, run: str, state: Path) -> None:
    """Remember the workspace's `.git`, if there is one, as one that `run` made.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    try:
        status = os.lstat(workspace / ".git")
    except OSError:
        return
    _write(_file(workspace, state), _Mark(status.st_dev, status.st_ino, run))


def why_untrusted(workspace: Path, state: Path) -> str | None:
    """What to tell the user about a `.git` that a run made; None where it is another, or none."""
    if not has_git(workspace):
        return None
    try:
        expected = _read(_expectation(workspace, state))
        if expected is not None:
            return _came_unseen(workspace, expected, state)
        mark = _read(_file(workspace, state))
        status = os.lstat(workspace / ".git")
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as exc:
        return (
            f"the git repository is not used: {str(_file(workspace, state))!r} cannot be read ({exc}); look at"
            " the repository, then remove that file"
        )
    if mark is None or (mark.device, mark.inode) != (status.st_dev, status.st_ino):
        return None
    return f"the git repository is not used: it was made by run {mark.run!r}; {_ADVICE}"


def _came_unseen(workspace: Path, expected: _Mark, state: Path) -> str:
    """One that came during a run that goes on still, or never came to its end."""
    if is_alive(state / "runs" / expected.run):
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
    try:
        make_private_dir(file.parent)
        partial = file.with_suffix(f".{os.getpid()}.new")
        partial.write_bytes(msgspec.json.encode(mark))
        partial.replace(file)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


def _expectation(workspace: Path, state: Path) -> Path:
    return _file(workspace, state).with_suffix(".none")


def _file(workspace: Path, state: Path) -> Path:
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()
    return state / "untrusted-git" / f"{name}.json"
