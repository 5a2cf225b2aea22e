"""Applies, undoes or rejects the changes of a run after its end."""

from pathlib import Path
from typing import Literal

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError, RingfenceError, UsageError
from ringfence.job.interrupted_runs import completed_work
from ringfence.journal import is_alive, verify_run
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    apply_run,
    has_changes,
    has_record,
    is_applied,
    load_record,
    undo_run,
)
from ringfence.sandbox.workspace.restore import Restored

ChangesState = Literal["none", "running", "unknown", "pending", "applied", "undone", "rejected"]
"""`none`: the run changed nothing. `unknown`: it was interrupted before its changes were captured. `pending`: they are
in a private copy. `applied`: they are in the workspace."""


def undone_marker(run: Path) -> Path:
    """The file in a run's directory that exists while its changes are undone."""
    return run / "undone"


def rejected_marker(run: Path) -> Path:
    """The file in a run's directory that exists while its changes are rejected; it names the person."""
    return run / "rejected"


def mark_applied(run: Path) -> None:
    """Note in a run's directory that its changes were applied, which no program needs a repository to read."""
    for marker in (undone_marker(run), rejected_marker(run)):
        marker.unlink(missing_ok=True)
    _applied_marker(run).touch(mode=0o600)


def is_decided(run: Path) -> bool:
    """Whether a person has applied or rejected the changes of the run in a directory."""
    return _applied_marker(run).exists() or rejected_marker(run).exists()


def check_record(run: Path) -> None:
    """Refuse the record of a run whose changes would be applied, if it is not what was written.

    Raises:
        RecordError: A line or a file of the record was changed, added or removed.
    """
    found = verify_run(run)
    if found.status in ("broken", "truncated"):
        raise RecordError(
            f"nothing was applied: the record of run {run.name!r} is {found.status}: {found.reason}; `ringfence runs "
            f"verify {run.name[-8:]}` has more, `ringfence diff --raw {run.name[-8:]}` still prints the patch"
        )


def _applied_marker(run: Path) -> Path:
    return run / "applied"


async def changes_state(run: Path) -> ChangesState:
    """Return the state of the changes of the run in a directory.

    Raises:
        RecordError: The record of its changes is damaged.
    """
    if not has_record(run):
        return "running" if is_alive(run) else "none"
    record = load_record(run)
    if record.after is None:
        return "running" if is_alive(run) else "unknown"
    if rejected_marker(run).exists():
        return "rejected"
    if not has_changes(record, state_dir()):
        return "none"
    if undone_marker(run).exists():
        return "undone"
    is_there = record.mode != "clone" or await is_applied(record, state_dir())
    return "applied" if is_there else "pending"


async def apply_changes(run: Path, *, force: bool = False) -> Restored:
    """Apply the changes of the run in a directory to its workspace: those of a private copy, or undone ones.

    Raises:
        UsageError: The run has not ended.
        RecordError: Its record is broken.
        RingfenceError: It changed nothing, or was interrupted and its changes cannot be distinguished from later ones.
        WorkspaceConflict: Files of the workspace are in the way; `force` overwrites and keeps them.
        PolicyRefused: Another run works on the workspace.
    """
    check_record(run)
    record = await _complete(run, "apply")
    restored = await apply_run(record, state_dir(), force=force)
    mark_applied(run)
    return restored


async def undo_changes(run: Path, *, force: bool = False) -> Restored:
    """Undo the changes of the run in a directory in its workspace.

    Raises:
        UsageError, RingfenceError, WorkspaceConflict, PolicyRefused: As `apply_changes`; or a private copy was never
            applied, so that there is nothing to undo.
    """
    record = await _complete(run, "undo")
    restored = await undo_run(record, state_dir(), force=force)
    if restored.diff.files:
        undone_marker(run).touch(mode=0o600)
    return restored


async def reject_changes(run: Path, *, by: str, force: bool = False) -> Restored | None:
    """Mark the changes of the run in a directory as rejected, and undo them if they are in the workspace.

    Args:
        run: The run's directory.
        by: The person who rejects them.
        force: Whether to overwrite files that were changed since.

    Returns:
        The result of the undo; None if no changes were in the workspace.

    Raises:
        UsageError, RingfenceError, WorkspaceConflict, PolicyRefused: As `undo_changes`.
    """
    restored = None
    if await changes_state(run) == "applied":
        restored = await undo_changes(run, force=force)
    else:
        await _complete(run, "reject")
    rejected_marker(run).write_text(f"{by}\n", encoding="utf-8")
    return restored


async def _complete(run: Path, action: str) -> WorkRecord:
    if not has_record(run):
        raise RingfenceError(f"run {run.name!r} changed no files, so there is nothing to {action}")
    record = load_record(run)
    if record.after is None and is_alive(run):
        raise UsageError(f"run {run.name!r} is still running; wait for its end, or cancel it")
    if record.after is None and record.mode != "clone":
        raise RingfenceError(
            f"run {run.name!r} was interrupted, and its changes cannot be distinguished from later ones of yours; "
            f"look at them with `ringfence diff {run.name[-8:]}` on its machine, then try again"
        )
    record, _ = await completed_work(run)
    if not has_changes(record, state_dir(), in_files=action == "undo"):
        raise RingfenceError(f"run {run.name!r} changed no files, so there is nothing to {action}")
    return record
