"""Records the changes that a run made to its workspace, applies them and undoes them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import msgspec

from ringfence.errors import RecordError, RingfenceError
from ringfence.filesystem import replace_file
from ringfence.sandbox.workspace.git.merge import CommittedFile
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.protect.flags import flag, matches_any
from ringfence.sandbox.workspace.protect.repositories import retire_repositories
from ringfence.sandbox.workspace.restore import Restored, restore
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.diff import Diff, with_unkept
from ringfence.sandbox.workspace.snapshot.memo import Memo, load_memo
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

_FILE = "work.json"
_REVERTED = "reverted"
"""Label of the state that `undo` restores after `apply` has overwritten files that the user had changed."""
_REAPPLIED = "reapplied"
"""Label of the state that `apply` restores after `undo` has overwritten files that the user had changed."""
_PATHS = frozenset({"workspace", "clone", "git_appeared", "refs", "committed"})
"""Fields whose texts may hold bytes that are not UTF-8."""


class WorkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run's work. Saved as `work.json` in the run's directory."""

    run: str
    workspace: str
    """The resolved path; bytes that are not UTF-8 are surrogate escapes, written `\\udcxx`."""
    mode: str
    uid: int
    """The owner of the workspace: files are written as this user."""
    gid: int
    before: str
    """Snapshot before the run."""
    start: str | None = None
    """The snapshot that the agent started from, if not `before`: for a clone that continues an earlier one."""
    after: str | None = None
    """Snapshot after the run; None if it did not end in order."""
    base_commit: str | None = None
    """The commit of HEAD before the run."""
    repository: str = ""
    """The address of the remote `origin`, without credentials; empty if there is none."""
    refs: dict[str, str] = {}
    """Refs made in the user's repository."""
    clone: str | None = None
    """The clone's directory, in mode `clone`."""
    git_present: bool = False
    """Whether the workspace had a `.git` before the run."""
    git_appeared: list[str] = []
    """Git directories in the workspace itself that did not exist before: they run on the user's machine."""
    notes: list[str] = []
    protect: list[str] = []
    """Patterns of paths that the agent may not write; a change that matches is reported."""
    committed: list[CommittedFile] = []
    """Files of commits made inside that differ from the workspace."""

    @property
    def actor(self) -> Actor:
        """The user as which the workspace is written."""
        return Actor(self.uid, self.gid)


def save_record(run_dir: Path, record: WorkRecord) -> None:
    """Write `work.json`, atomically replacing an earlier one."""
    encoded = msgspec.to_builtins(record)
    for name in _PATHS:
        encoded[name] = _each_text(encoded[name], _escaped)
    encoded["notes"] = [note.encode("utf-8", "replace").decode() for note in record.notes]
    replace_file(run_dir / _FILE, msgspec.json.format(msgspec.json.encode(encoded)))


def has_record(run_dir: Path) -> bool:
    """Whether a run got as far as preparing its workspace."""
    return (run_dir / _FILE).is_file()


def load_record(run_dir: Path) -> WorkRecord:
    """Read `work.json`.

    Raises:
        RecordError: The run has none, or it is damaged.
    """
    try:
        encoded = msgspec.json.decode((run_dir / _FILE).read_bytes(), type=dict[str, object])
        for name in _PATHS & encoded.keys():
            encoded[name] = _each_text(encoded[name], _unescaped)
        return msgspec.convert(encoded, WorkRecord)
    except FileNotFoundError as exc:
        raise RecordError(f"run {run_dir.name!r} left no work behind; see `ringfence runs ls`") from exc
    except (OSError, ValueError) as exc:
        raise RecordError(f"the work record of run {run_dir.name!r} is damaged: {exc}") from exc


def _each_text(value: object, change: Callable[[str], str]) -> object:
    """Return a value in which each text, at any depth, is changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {_each_text(key, change): _each_text(item, change) for key, item in value.items()}
    return value


def _escaped(text: str) -> str:
    """Escape lone surrogates, which JSON cannot hold, as `%dc80`, and percent signs as `%25`."""
    return "".join(
        f"%{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else "%0025" if c == "%" else c for c in text
    )


def _unescaped(text: str) -> str:
    head, *rest = text.split("%")
    return head + "".join(chr(int(part[:4], 16)) + part[4:] for part in rest)


def open_store(record: WorkRecord, state: Path) -> SnapshotStore:
    """The store with a run's checkpoints."""
    return SnapshotStore(Path(record.workspace), state, actor=record.actor)


async def diff_run(record: WorkRecord, store: SnapshotStore) -> Diff:
    """List the changes of the run, including those that no patch can show.

    Raises:
        RecordError: It has no end to compare with.
    """
    before, after = await store.memo(record.before), await store.memo(_after(record))
    diff = await store.diff(record.before, _after(record)) if before.tree != after.tree else Diff()
    return _with_unkept(record, diff, before, after)


async def compare_run(record: WorkRecord, store: SnapshotStore) -> tuple[Diff, bytes]:
    """As `diff_run` and `patch_run`, by one git.

    Raises:
        RecordError: It has no end to compare with.
        PatchTooLarge: As `SnapshotStore.patch`.
    """
    before, after = await store.memo(record.before), await store.memo(_after(record))
    diff, patch = Diff(), b""
    if before.tree != after.tree:
        diff, patch = await store.compare(record.before, _after(record))
    return _with_unkept(record, diff, before, after), patch


def _with_unkept(record: WorkRecord, diff: Diff, before: Memo, after: Memo) -> Diff:
    if record.clone:
        # A clone gets no files that a snapshot does not keep, so all such files in it are the run's.
        before = Memo(before.tree)
    return with_unkept(diff, before, after)


def has_changes(record: WorkRecord, state: Path, *, in_files: bool = False) -> bool:
    """Whether a run is known to have changed files or made commits, including changes that no patch can show.

    True for a run that was interrupted; False if its checkpoints no longer exist.

    Args:
        record: The record of the run.
        state: The state directory.
        in_files: Whether to ignore commits.
    """
    if record.after is None or record.git_appeared or (record.refs and not in_files):
        return True
    store = open_store(record, state)
    try:
        before, after = load_memo(store.directory, record.before), load_memo(store.directory, record.after)
    except RecordError:
        return False
    # A clone has no files that a snapshot does not cover.
    return before.tree != after.tree if record.clone else not before.is_same(after)


async def patch_run(record: WorkRecord, store: SnapshotStore) -> bytes:
    """Return the changes of the run as a patch.

    Raises:
        RecordError: It has no end to compare with.
    """
    before, after = await store.memo(record.before), await store.memo(_after(record))
    return await store.patch(record.before, _after(record)) if before.tree != after.tree else b""


def runs_on_your_machine(record: WorkRecord, diff: Diff) -> list[str]:
    """Paths changed in the tree or by commits that the host runs or trusts on its own, or that the user protects."""
    paths = [*(change.path for change in diff.files), *(change.path for change in diff.unkept)]
    paths += [file.path for file in record.committed]
    return sorted({*flag(paths), *matches_any(paths, record.protect), *record.git_appeared})


async def apply_run(record: WorkRecord, state: Path, *, force: bool = False) -> Restored:
    """Apply a run's changes to the workspace: those of a clone, or those that were undone.

    Files that `force` overwrites are kept, and `undo_run` restores them.

    Raises:
        PolicyRefused: Another run, undo or apply is writing to the workspace.
        WorkspaceConflict: Files that it changes differ from those before the run; nothing was written.
        RecordError: The run or its checkpoints are gone.
        RingfenceError: The workspace is not the caller's to write.
    """
    await record.actor.call(lambda: _check_writable(record))
    store = open_store(record, state)
    with held(Path(record.workspace), by=f"{record.run} (apply)", state=state):
        return await restore(
            store,
            wanted=await store.find(f"{record.run}/{_REAPPLIED}") or _after(record),
            expected=record.before,
            label=f"{record.run}/beforeapply",
            force=force,
            way_back=f"{record.run}/{_REVERTED}",
        )


async def undo_run(record: WorkRecord, state: Path, *, force: bool = False) -> Restored:
    """Undo a run's changes in the workspace, and move repositories that it made out of it.

    Files that `force` overwrites are kept, and `apply_run` restores them.

    Raises:
        PolicyRefused: Another run, undo or apply is writing to the workspace.
        WorkspaceConflict: Files that it changed have been changed since; nothing was written.
        RecordError: The run or its checkpoints are gone.
        RingfenceError: The run never wrote to the workspace.
    """
    if record.mode == "clone" and not await is_applied(record, state):
        raise RingfenceError(
            f"run {record.run!r} worked on a clone and its changes were not applied: there is nothing to undo"
        )
    store = open_store(record, state)
    with held(Path(record.workspace), by=f"{record.run} (undo)", state=state):
        diff = await diff_run(record, store)
        restored = await restore(
            store,
            wanted=await store.find(f"{record.run}/{_REVERTED}") or record.before,
            expected=_after(record),
            label=f"{record.run}/beforeundo",
            force=force,
            way_back=f"{record.run}/{_REAPPLIED}",
        )
        retired = await anyio.to_thread.run_sync(
            lambda: retire_repositories(
                Path(record.workspace),
                record.git_appeared,
                run_dir=state / "runs" / record.run,
                state=state,
            )
        )
    unkept = {change.path for change in diff.unkept}
    active = [path for path in runs_on_your_machine(record, diff) if path in unkept]
    there = await record.actor.call(
        lambda: tuple(path for path in active if os.path.lexists(Path(record.workspace) / path))
    )
    return replace(restored, repositories=retired, active=there)


async def is_applied(record: WorkRecord, state: Path) -> bool:
    """Whether a clone's changes were applied to the workspace."""
    return await open_store(record, state).has(f"{record.run}/beforeapply")


def _check_writable(record: WorkRecord) -> None:
    """Refuse a workspace that the caller cannot write, before a checkpoint shows the changes as applied."""
    workspace = Path(record.workspace)
    if workspace.is_dir() and not os.access(workspace, os.W_OK | os.X_OK, effective_ids=True):
        raise RingfenceError(
            f"the workspace {record.workspace!r} cannot be written by you; take the changes elsewhere with"
            f" `ringfence diff --raw {record.run[-8:]} > work.patch` and `git apply`"
        )


def _after(record: WorkRecord) -> str:
    if record.after is None:
        raise RecordError(
            f"run {record.run!r} was interrupted before its changes were kept; compare by hand with what"
            f" {os.fsdecode(record.workspace)!r} holds now"
        )
    return record.after
