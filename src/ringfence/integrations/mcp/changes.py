"""The changes in a sandbox: compares them, keeps and restores snapshots, and applies them to the workspace.

Snapshots are those of runs, in the same store outside the workspace. They hold what git does not ignore, and neither
`.git` nor empty directories. While one is taken or restored, no call writes and no process of the client runs. A process
that a command left behind may go on, so the files are read twice, and a snapshot counts only if both readings are the
same. Files are restored by the guest, inside the fence, with the rights that programs there have.
"""

import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError, SandboxFileError, UsageError
from ringfence.integrations.mcp import arguments as given
from ringfence.integrations.mcp.registry import ServerOptions, log
from ringfence.integrations.mcp.sandbox import ClientSandbox
from ringfence.integrations.mcp.text import decode, decode_page
from ringfence.job.apply_request import request_apply
from ringfence.job.changes import apply_changes, changes_state
from ringfence.journal import run_dir
from ringfence.sandbox import Sandbox
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    diff_run,
    load_record,
    open_store,
    runs_on_your_machine,
)
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.diff import Diff
from ringfence.sandbox.workspace.snapshot.objects import Blob
from ringfence.sandbox.workspace.snapshot.store import Snapshot, SnapshotStore

START = "start"
"""The name of the state in which a sandbox was opened."""
MAX_SNAPSHOTS = 50
_ATTEMPTS = 3
_MAX_LISTED = 500
_MAX_RESTORED = 20_000
_AT_ONCE = 200


async def diff(held: ClientSandbox, arguments: given.DiffArguments) -> dict[str, Any]:
    """Compare the private copy with the state in which the sandbox was opened; return a page of the patch.

    Raises:
        UsageError: A call or process may be writing, or the changes cannot be seen from outside.
        RingfenceError: The comparison fails.
    """
    if held.job is None:
        raise UsageError(f"sandbox {held.handle!r} never had a workspace: {held.end_reason}")
    record = load_record(held.job.dir)
    store = open_store(record, state_dir())
    shown: dict[str, Any] = {}
    if arguments.cursor == 0:
        if held.is_open:
            async with held.quiet() as sandbox:
                held.compared = (await _take(sandbox, record, store, "mcpdiff")).id
        else:
            await held.over.wait()
            record = load_record(held.job.dir)
            held.compared = record.after
        if held.compared is None:
            raise RingfenceError(f"the changes of sandbox {held.handle!r} were not kept: {held.end_reason}")
        shown = await _describe(record, store, held.compared)
    if held.compared is None:
        raise UsageError("there is no comparison to continue; begin with cursor 0")
    patch = await store.patch(record.before, held.compared)
    if arguments.cursor > len(patch):
        raise UsageError(f"cursor {arguments.cursor} is beyond the patch of {len(patch)} bytes")
    end = arguments.cursor + arguments.limit_bytes
    page, taken = decode_page(patch[arguments.cursor : end], is_last=end >= len(patch))
    following = arguments.cursor + taken
    return shown | {
        "patch": page.text,
        "is_replaced": page.is_replaced,
        "patch_bytes": len(patch),
        "next_cursor": following if following < len(patch) else None,
    }


async def _describe(record: WorkRecord, store: SnapshotStore, after: str) -> dict[str, Any]:
    """The changed files, and those among them that tools on the user's machine run or trust by themselves."""
    record = msgspec.structs.replace(record, after=after)
    found = await diff_run(record, store)
    shown: dict[str, Any] = {
        "files": [
            {"path": _text(c.raw_path), "kind": c.kind, "added": c.insertions, "removed": c.deletions}
            for c in found.files[:_MAX_LISTED]
        ],
        "files_total": len(found.files),
    }
    if found.unkept:
        shown["not_in_patch"] = [_text(os.fsencode(str(each))) for each in found.unkept[:_MAX_LISTED]]
    if suspects := runs_on_your_machine(record, found):
        shown["runs_on_your_machine"] = [_text(os.fsencode(path)) for path in suspects[:_MAX_LISTED]]
    return shown


def _text(path: bytes) -> str:
    return decode(path).text


async def create_snapshot(held: ClientSandbox, _arguments: given.SandboxArguments) -> dict[str, Any]:
    """Keep the state of the private copy.

    Raises:
        UsageError: A call or process may be writing, there is no private copy, or there are enough snapshots.
    """
    async with held.quiet() as sandbox:
        return await _keep(held, sandbox, _copy_of(held))


async def _keep(held: ClientSandbox, sandbox: Sandbox, record: WorkRecord) -> dict[str, Any]:
    """Take a snapshot and name it."""
    number = len(held.snapshots) + 1
    if number > MAX_SNAPSHOTS:
        raise UsageError(f"a sandbox has at most {MAX_SNAPSHOTS} snapshots; open another sandbox")
    taken = await _take(sandbox, record, open_store(record, state_dir()), f"mcp{_letters(number)}")
    name = f"snapshot-{number}"
    held.snapshots[name] = taken.id
    kept: dict[str, Any] = {"snapshot": name, "files": taken.files}
    if taken.found.skipped:
        kept["not_in_snapshot"] = [_text(path) for path in sorted(taken.found.skipped)[:_MAX_LISTED]]
    return kept


async def restore_snapshot(held: ClientSandbox, arguments: given.SnapshotArguments) -> dict[str, Any]:
    """Set the files of the private copy to what they were in a snapshot. The state before is a new snapshot.

    Raises:
        UsageError: There is no such snapshot; a call or process may be writing; too many files differ.
        SandboxFileError: A file could not be written; the text names the snapshot of the state before.
    """
    record = _copy_of(held)
    wanted = (
        (record.start or record.before)
        if arguments.snapshot == START
        else held.snapshots.get(arguments.snapshot)
    )
    if wanted is None:
        known = ", ".join((START, *held.snapshots))
        raise UsageError(
            f"sandbox {held.handle!r} has no snapshot {arguments.snapshot!r}; there are: {known}"
        )
    async with held.quiet() as sandbox:
        before = (await _keep(held, sandbox, record))["snapshot"]
        store = open_store(record, state_dir())
        changes = await store.diff(held.snapshots[before], wanted)
        if len(changes.files) > _MAX_RESTORED:
            raise UsageError(
                f"nothing was restored: {len(changes.files)} files differ, and at most {_MAX_RESTORED} can be restored"
            )
        blobs, _ = await store.changes(held.snapshots[before], wanted, diff=changes)
        private = (await store.memo(wanted)).private
        try:
            await _restore_inside(sandbox, store, changes, blobs, private)
        except SandboxFileError as exc:
            raise SandboxFileError(
                f"{exc}; some files are restored and others not: snapshot {before!r} is the state before",
                path=exc.path,
                errno_name=exc.errno_name,
            ) from exc
    return {"restored": arguments.snapshot, "files_changed": len(changes.files), "before": before}


async def _restore_inside(
    sandbox: Sandbox, store: SnapshotStore, changes: Diff, blobs: list[Blob], private: frozenset[bytes]
) -> None:
    """Remove and write files by the guest, as the user inside."""
    for change in changes.files:
        if change.kind in ("deleted", "typechange"):
            await sandbox.remove(_inside(sandbox, change.raw_path))
    parents = {
        parent for change in changes.files if change.kind == "deleted" for parent in _parents(change.path)
    }
    # Directories that are empty now; those that hold ignored files stay.
    deepest_first = sorted(parents, key=len, reverse=True)
    for begin in range(0, len(deepest_first), _AT_ONCE):
        places = [f"{sandbox.workspace}/{place}" for place in deepest_first[begin : begin + _AT_ONCE]]
        await sandbox.run(["/bin/sh", "-c", 'for d do rmdir -- "$d" 2>/dev/null; done', "sh", *places])
    async for batch in store.contents(blobs):
        for blob, data in batch:
            await _write_inside(sandbox, blob, data, is_private=blob.path in private)


async def _write_inside(sandbox: Sandbox, blob: Blob, data: bytes, *, is_private: bool) -> None:
    place = _inside(sandbox, blob.path)
    if not stat.S_ISLNK(blob.git_mode):
        mode = 0o755 if blob.git_mode & 0o100 else 0o644
        await sandbox.write_file(place, data, mode=mode & (0o700 if is_private else 0o777))
        return
    script = 'mkdir -p -- "$(dirname -- "$2")" && ln -sfn -- "$1" "$2"'
    made = await sandbox.run(["/bin/sh", "-c", script, "sh", os.fsdecode(data), place])
    if not made.ok:
        raise SandboxFileError(
            f"the link {place!r} could not be made inside: {made.excerpt(200)}", path=place, errno_name="EIO"
        )


def _inside(sandbox: Sandbox, path: bytes) -> str:
    return f"{sandbox.workspace}/{os.fsdecode(path)}"


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _letters(number: int) -> str:
    """A number as letters, of which labels of snapshots consist."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def _copy_of(held: ClientSandbox) -> WorkRecord:
    """The record of a sandbox's private copy.

    Raises:
        UsageError: It has none.
    """
    assert held.job is not None
    record = load_record(held.job.dir)
    if record.clone is None:
        raise UsageError(
            f"sandbox {held.handle!r} has no private copy (mode {record.mode!r}), and only those have snapshots; "
            "`ringfence checkpoint` keeps states of the workspace itself"
        )
    return record


async def _take(sandbox: Sandbox, record: WorkRecord, store: SnapshotStore, word: str) -> Snapshot:
    """Take a snapshot of what a quiet sandbox works on, and which did not change meanwhile.

    Raises:
        UsageError: Something inside goes on writing, or the files are not on this machine.
    """
    if sandbox.placement.upload != "none":
        raise UsageError(
            "the files of this sandbox are at its engine, which does not see those of this machine; they can be "
            "compared after sandbox_close"
        )
    root, actor = Path(record.workspace), record.actor
    if record.clone is not None:
        root, actor = Path(record.clone), Actor.current()
    take = partial(store.take, f"{record.run}/{word}", base=record.before, root=root, actor=actor)
    earlier = await take()
    for _ in range(_ATTEMPTS):
        later = await take()
        if later.tree == earlier.tree:
            return later
        earlier = later
    raise UsageError(
        "files in this sandbox change all the time: a process that a command left behind goes on writing; stop it first"
    )


async def apply(options: ServerOptions, client: str, held: ClientSandbox) -> dict[str, Any]:
    """Apply the changes of a closed sandbox to the workspace, or ask a person to.

    Raises:
        UsageError: It is open, or changed nothing.
        RingfenceError: The changes do not fit the workspace any more; nothing was written.
    """
    if held.job is None:
        raise UsageError(f"sandbox {held.handle!r} never had a workspace: {held.end_reason}")
    record, short = load_record(held.job.dir), held.job.id[-8:]
    if record.mode == "bind":
        return {
            "state": "applied",
            "message": f"the sandbox works on the workspace itself (mode 'bind'): its changes are there already; "
            f"`ringfence undo {short}` reverts them when it is closed",
        }
    if not held.over.is_set():
        raise UsageError(
            f"sandbox {held.handle!r} is open; close it with sandbox_close, then apply its changes"
        )
    run = run_dir(held.job.id)
    state = await changes_state(run)
    if state != "pending":
        raise UsageError(f"sandbox {held.handle!r} has no changes to apply: their state is {state!r}")
    record = load_record(held.job.dir)
    suspects = runs_on_your_machine(record, await diff_run(record, open_store(record, state_dir())))
    if options.allows_apply and not suspects:
        restored = await apply_changes(run)
        log(f"run {held.job.id}: its changes were applied, as {client} requested")
        return {"state": "applied", "files_changed": len(restored.diff.files)}
    request_apply(held.job.id, by=client, workspace=record.workspace)
    log(f"run {held.job.id}: {client} requests to apply its changes; `ringfence inbox ls` lists them")
    why = (
        " (some changed files run on this machine by themselves)" if suspects and options.allows_apply else ""
    )
    return {
        "state": "requested",
        "message": f"nothing was applied: a person decides{why}. `ringfence inbox ls` lists the request, "
        f"`ringfence diff {short}` shows the changes, `ringfence apply {short}` applies them",
    }
