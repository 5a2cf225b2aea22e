"""The work of earlier runs, also of those that never came to close it themselves."""

from contextlib import ExitStack
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError
from ringfence.journal import creation_of, is_alive, resolve
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    diff_run,
    has_record,
    is_applied,
    load_record,
    open_store,
)
from ringfence.sandbox.workspace.run import close


async def completed_work(path: Path) -> tuple[WorkRecord, bool]:
    """The work record of the run in `path`, and whether its end was only taken now.

    A run whose process died kept no state after it. For one on a clone that state is in its clone still; for
    one on the workspace itself it is what is there now, whoever wrote it.

    Raises:
        RingfenceError: The run is still going on.
        RecordError: It left no work behind.
        PolicyRefused: Another run is working on the workspace.
        InfrastructureFault: Git failed or the disk is full.
    """
    record = load_record(path)
    if record.after is not None:
        return record, False
    if is_alive(path):
        raise RingfenceError(f"run {path.name!r} is still going on; wait for its end")
    with ExitStack() as stack:
        if record.mode != "clone":
            # What another writes meanwhile would be taken for the work of this run.
            stack.enter_context(held(Path(record.workspace), by=f"{record.run} (its end)", state=state_dir()))
        record, _ = await close(record, path, state_dir())
    return record, True


async def unapplied_work(run_id: str) -> WorkRecord | None:
    """What a run to be gone on with changed in a clone and nobody brought into the workspace; None if nothing.

    Raises:
        RecordError: A record of the chain is gone or damaged.
        RingfenceError: The run is still going on.
    """
    path = resolve(run_id)
    while not has_record(path):  # it ended before it had a workspace: what it went on with counts
        created = creation_of(path)
        if created is None or created.continues is None:
            return None
        path = resolve(created.continues)
    if load_record(path).mode != "clone":
        return None
    record, _ = await completed_work(path)
    if await is_applied(record, state_dir()):
        return None
    return record if (await diff_run(record, open_store(record, state_dir()))).files else None
