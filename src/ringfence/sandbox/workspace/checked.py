"""What a check changed in the workspace itself, after the work was brought out."""

import os
from pathlib import Path

import msgspec

from ringfence.sandbox.workspace.git_layout import has_git
from ringfence.sandbox.workspace.prepare import Finished, Prepared
from ringfence.sandbox.workspace.store import Checkpoint, CheckpointStore, PatchTooLarge
from ringfence.sandbox.workspace.untrusted import distrust
from ringfence.sandbox.workspace.work import (
    WorkRecord,
    diff_run,
    open_store,
    patch_run,
    runs_on_your_machine,
    save_record,
)

_SHOWN = 20


async def finish_again(prepared: Prepared, work: Finished) -> Finished | None:
    """Keep what the check left as the run's end; None if it changed nothing, or only a clone.

    What a check runs was written by the agent: what it changes is the agent's doing.

    Args:
        prepared: From `prepare`.
        work: From `finish`, before the check.

    Raises:
        InfrastructureFault: Git failed or the disk is full.
    """
    record = work.record
    if record.mode != "bind":
        return None
    store = open_store(record, prepared.state)
    after = await store.take(f"{record.run}/checked", base=record.before)
    appeared = await _git_appeared(record, store, after, prepared.state)
    if after.tree == work.after.tree and appeared == record.git_appeared:
        return None
    changed = [change.path for change in (await store.diff(work.after.id, after.id)).files]
    changed += [path for path in appeared if path not in record.git_appeared]
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    note = f"the check changed files, they count as the run's: {', '.join(changed[:_SHOWN])}{more}"
    notes = list(dict.fromkeys([*record.notes, note, *after.notes]))
    record = msgspec.structs.replace(record, after=after.id, git_appeared=appeared, notes=notes)
    save_record(prepared.run_dir, record)
    return await _finished(record, after, prepared.state, [*work.notes, note])


async def _finished(record: WorkRecord, after: Checkpoint, state: Path, notes: list[str]) -> Finished:
    diff = await diff_run(record, state)
    patch = b""
    try:
        patch = await patch_run(record, state)
    except PatchTooLarge as exc:
        notes = [*notes, str(exc)]
    return Finished(
        record=record,
        after=after,
        diff=diff,
        patch=patch,
        runs_on_your_machine=tuple(runs_on_your_machine(record, diff)),
        notes=(*notes, *after.notes),
    )


async def _git_appeared(
    record: WorkRecord, store: CheckpointStore, after: Checkpoint, state: Path
) -> list[str]:
    before = await store.memo(record.before)
    appeared = [os.fsdecode(path) for path in after.git_entries if path not in before.git_entries]
    if not record.git_present and has_git(Path(record.workspace)):
        appeared.append(".git")
        distrust(Path(record.workspace), record.run, state)
    return sorted(appeared)
