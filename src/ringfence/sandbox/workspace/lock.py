"""One run, undo or apply at a time changes a workspace itself: two could not be told apart, nor undone one by one.

Nor may one change a directory that another's workspace lies in, or that lies in it: from there, it could put another
directory in a place that is just being mounted.

An exclusive `flock` on a file in the state directory, which the kernel releases when its holder dies. The file says
who holds which workspace. Files are opened, locked and removed under a lock of their own.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, PolicyRefused

_TEXT_LIMIT = 8192
BUSY = "workspace-busy"
"""The rule by which a workspace that another run has is refused."""
_GATE = "workspaces.gate"
_GATE_WAIT_S = 10.0
_GATE_LOOK_S = 0.02


@contextmanager
def held(workspace: Path, *, by: str, state: Path) -> Iterator[None]:
    """Hold a workspace while its files are written.

    Args:
        workspace: Resolved; it need not be there, or be of any use.
        by: Who writes, which others see.
        state: The state directory.

    Raises:
        PolicyRefused: Somebody else holds it, or one above or in it (`workspace-busy`).
        InfrastructureFault: The lock cannot be made.
    """
    folder = make_private_dir(state / "locks")
    path = _path(folder, workspace)
    with _gate(folder):
        lock = _open(path)
        try:
            _take(lock, path, workspace)
            _refuse_overlap(folder, path, workspace)
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
    """Who holds a workspace now; None if nobody does.

    Raises:
        InfrastructureFault: The lock cannot be looked at.
    """
    folder = make_private_dir(state / "locks")
    path = _path(folder, workspace)
    with _gate(folder):
        if not path.exists():
            return None
        lock = _open(path)
        try:
            return None if _try_lock(lock, path) else _holder(lock)[0]
        finally:
            os.close(lock)


def _path(folder: Path, workspace: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()}.lock"


@contextmanager
def _gate(folder: Path) -> Iterator[None]:
    """One at a time looks at who holds what, and takes hold; that is quick."""
    gate = _open(folder / _GATE)
    try:
        deadline = time.monotonic() + _GATE_WAIT_S
        while not _try_lock(gate, folder / _GATE):
            if time.monotonic() > deadline:
                raise InfrastructureFault(
                    f"another ringfence holds {str(folder / _GATE)!r} for more than {_GATE_WAIT_S:.0f} s; end it if it"
                    " hangs (`fuser` names it)"
                )
            time.sleep(_GATE_LOOK_S)
        yield
    finally:
        os.close(gate)


def _take(lock: int, path: Path, workspace: Path) -> None:
    if not _try_lock(lock, path):
        raise _busy(_holder(lock)[0], workspace, workspace)


def _refuse_overlap(folder: Path, own: Path, workspace: Path) -> None:
    """Refuse if a directory above the workspace, or in it, is held; what nobody holds any more is removed."""
    for path in folder.glob("*.lock"):
        if path == own or len(path.stem) != hashlib.sha256().digest_size * 2:
            continue
        lock = _open(path)
        try:
            by, held_workspace = _holder(lock)
            if _try_lock(lock, path):
                path.unlink(missing_ok=True)
            elif held_workspace is not None and (
                workspace.is_relative_to(held_workspace) or held_workspace.is_relative_to(workspace)
            ):
                raise _busy(by, held_workspace, workspace)
        finally:
            os.close(lock)


def _busy(by: str, held_workspace: Path, wanted: Path) -> PolicyRefused:
    who = f"run {by!r}" if by else "another run"
    why = ""
    if held_workspace != wanted:
        relation = "lies in it" if wanted.is_relative_to(held_workspace) else "holds it"
        why = f", and {str(wanted)!r} {relation}"
    return PolicyRefused(
        f"{who} is working on {str(held_workspace)!r} just now{why}; wait for its end (--wait 10m does; a standing"
        " sandbox: `ringfence sandbox ls`, then `sandbox rm`), or use --mode clone",
        rule=BUSY,
    )


def _holder(lock: int) -> tuple[str, Path | None]:
    """Who holds a lock, and on which workspace; None from a version that did not write it down."""
    by, _, workspace = os.pread(lock, _TEXT_LIMIT, 0).partition(b"\n")
    return by.decode("utf-8", "replace").strip(), Path(os.fsdecode(workspace)) if workspace else None


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(f"could not open {str(path)!r}: {exc.strerror}") from exc


def _try_lock(lock: int, path: Path) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        raise InfrastructureFault(f"could not lock {str(path)!r}: {exc.strerror}") from exc
    return True
