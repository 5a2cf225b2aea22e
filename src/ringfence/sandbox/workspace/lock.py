"""Locks workspaces: one run, undo or apply at a time changes one, as two could not be distinguished or undone singly.

Nor may a run change a directory above or below another's workspace: from there, it could replace a directory that is
just being mounted.

Each workspace has a file in the state directory, with an exclusive `flock` that the kernel releases when its holder
dies. The file names the holder and the workspace. Files are opened, locked and removed under a separate lock.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, PolicyRefused, next_step
from ringfence.flock import try_lock

BUSY = "workspace-busy"
"""The rule that refuses a workspace that another run holds."""
_TEXT_LIMIT = 8192
_GATE = "workspaces.gate"
_GATE_WAIT_S = 10.0
_GATE_LOOK_S = 0.02
_LOCK_NAMES = f"{'?' * hashlib.sha256().digest_size * 2}.lock"
"""Pattern of the names of workspace locks; the directory holds other locks, too."""


class WorkspaceBusy(PolicyRefused):
    """Another run is working on the workspace.

    Args:
        problem: The run and its workspace.
        standing: Name of the standing sandbox that the run belongs to, if any.
    """

    def __init__(self, problem: str, standing: str | None = None) -> None:
        self.problem = problem
        advice = "wait for its end (--wait 10m does)"
        if standing is not None:
            advice = (
                f"it is the run of the standing sandbox {standing!r}: `ringfence sandbox exec {standing} -- CMD` is "
                f"another command in it, `ringfence sandbox rm {standing}` ends it"
            )
        super().__init__(f"{problem}; {advice}, or use --mode clone", rule=BUSY)


@contextmanager
def held(workspace: Path, *, by: str, state: Path) -> Iterator[None]:
    """Hold a workspace while its files are written.

    Args:
        workspace: The resolved path, which need not exist or be a usable workspace.
        by: Name of the holder, shown to others.
        state: The state directory.

    Raises:
        PolicyRefused: Another holds it, or a workspace above or in it (`workspace-busy`).
        InfrastructureFault: The lock cannot be created.
    """
    with _gate(state) as folder:
        for other, its_holder in _held_workspaces(folder):
            if workspace.is_relative_to(other) or other.is_relative_to(workspace):
                raise _busy(its_holder, other, workspace)
        lock = _open(folder / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()}.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # cannot fail, as the file is new
            os.ftruncate(lock, 0)
            os.pwrite(lock, by.encode() + b"\n" + os.fsencode(workspace), 0)
        except BaseException:
            os.close(lock)
            raise
    try:
        yield
    finally:
        os.close(lock)


def read_holder(workspace: Path, state: Path) -> str | None:
    """Return the current holder of a workspace; None if it is free.

    Raises:
        InfrastructureFault: The locks cannot be read.
    """
    with _gate(state) as folder:
        return dict(_held_workspaces(folder)).get(workspace)


def workspaces_above(workspace: Path, state: Path) -> list[Path]:
    """Return the held workspaces in which a directory lies: who works there can replace it by a link.

    Raises:
        InfrastructureFault: The locks cannot be read.
    """
    with _gate(state) as folder:
        held_now = [other for other, _ in _held_workspaces(folder)]
    return [other for other in held_now if other != workspace and workspace.is_relative_to(other)]


@contextmanager
def _gate(state: Path) -> Iterator[Path]:
    """Yield the directory of locks under a lock that is held only briefly."""
    folder = make_private_dir(state / "locks")
    gate = _open(folder / _GATE)
    try:
        deadline = time.monotonic() + _GATE_WAIT_S
        while not try_lock(gate, fcntl.LOCK_EX, what=repr(str(folder / _GATE))):
            if time.monotonic() > deadline:
                raise InfrastructureFault(
                    f"another ringfence holds {str(folder / _GATE)!r} for more than {_GATE_WAIT_S:.0f} s; end it if it"
                    " hangs (`fuser` names it)"
                )
            time.sleep(_GATE_LOOK_S)
        yield folder
    finally:
        os.close(gate)


def _held_workspaces(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each held workspace and its holder; remove the files of workspaces that are no longer held."""
    for path in folder.glob(_LOCK_NAMES):
        lock = _open(path)
        try:
            if try_lock(lock, fcntl.LOCK_EX, what=repr(str(path))):
                path.unlink(missing_ok=True)
                continue
            by, _, workspace = os.pread(lock, _TEXT_LIMIT, 0).partition(b"\n")
        finally:
            os.close(lock)
        yield Path(os.fsdecode(workspace)), by.decode("utf-8", "replace")


def _busy(by: str, held_workspace: Path, wanted: Path) -> WorkspaceBusy:
    why = ""
    if held_workspace != wanted:
        relation = "lies in it" if wanted.is_relative_to(held_workspace) else "holds it"
        why = f", and {str(wanted)!r} {relation}"
    from ringfence.sandbox.supervisor.directory import find_by_run

    return WorkspaceBusy(f"run {by!r} is working on {str(held_workspace)!r} just now{why}", find_by_run(by))


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not open {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
