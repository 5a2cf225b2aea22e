"""One run, undo or apply at a time changes a workspace itself: two could not be told apart, nor undone one by one.

An exclusive `flock` on a file in the state directory, which the kernel releases when its holder dies.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, PolicyRefused
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.ownership import decide_for
from ringfence.sandbox.workspace.refusals import check_workspace
from ringfence.sandbox.workspace.untrusted import expect_no_git, settle_git

_ID_LIMIT = 200


@contextmanager
def claimed(
    workspace: Path,
    mode: WorkspaceMode | None,
    *,
    run: str,
    state: Path,
    is_fenced: bool = True,
    unseen: str | None = None,
) -> Iterator[None]:
    """Hold a workspace for a run that works on it itself; runs on a clone, or that only read, need not.

    Args:
        workspace: As named by the user.
        mode: The mode that was asked for; None: by the table of `ownership`.
        run: The run's id, which others are told.
        state: The state directory.
        is_fenced: False for the bare host, which always works on the workspace itself.
        unseen: Why this machine's directories cannot be mounted, if they cannot.

    Raises:
        UsageError: The workspace is absent or no directory.
        PolicyRefused: It may not be one, or not in this mode; or another run holds it (`workspace-busy`).
        InfrastructureFault: The lock cannot be made.
    """
    resolved = check_workspace(workspace, home=Path.home(), state=state)
    if is_fenced and decide_for(resolved, mode, unseen=unseen).mode != "bind":
        yield
        return
    with held(resolved, by=run, state=state):
        expect_no_git(resolved, run, state)
        try:
            yield
        finally:
            settle_git(resolved, state)


@contextmanager
def held(workspace: Path, *, by: str, state: Path) -> Iterator[None]:
    """Hold a workspace while its files are written.

    Args:
        workspace: Resolved; it need not be there, or be of any use.
        by: Who writes, which others are told.
        state: The state directory.

    Raises:
        PolicyRefused: Somebody else holds it (`workspace-busy`).
        InfrastructureFault: The lock cannot be made.
    """
    path = make_private_dir(state / "locks") / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()}.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(f"could not open {str(path)!r}: {exc.strerror}") from exc
    try:
        _take(lock, path, workspace, by)
        yield
    finally:
        os.close(lock)


def _take(lock: int, path: Path, workspace: Path, by: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, _ID_LIMIT, 0).decode("utf-8", "replace").strip()
        who = f"run {holder!r}" if holder else "another run"
        raise PolicyRefused(
            f"{who} is working on {str(workspace)!r} just now; wait for its end, or use --mode clone",
            rule="workspace-busy",
        ) from None
    except OSError as exc:
        raise InfrastructureFault(f"could not lock {str(path)!r}: {exc.strerror}") from exc
    os.ftruncate(lock, 0)
    os.pwrite(lock, by.encode() + b"\n", 0)
