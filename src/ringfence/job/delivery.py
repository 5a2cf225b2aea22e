"""Delivers a run's work after the agent has ended: exports, checks and records it.

The check is imported only if there is one: `exec` has none, and it would be a tenth of its imports.
"""

import math
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import state_dir
from ringfence.errors import InfrastructureFault, SandboxError, next_step
from ringfence.events import CheckpointCreated, WorkExported
from ringfence.frozen import frozen
from ringfence.job.outcome import PATCH_NAME, Outcome
from ringfence.job.recorder import Recorder
from ringfence.job.sandboxes import Sandboxes
from ringfence.job.state import JobState
from ringfence.job.stops import Stops
from ringfence.sandbox import Placement, Sandbox
from ringfence.sandbox.workspace.placement import open_copy
from ringfence.sandbox.workspace.record import open_store
from ringfence.sandbox.workspace.run import Finished, RunWorkspace
from ringfence.sandbox.workspace.snapshot.store import Snapshot

COMMITS_S = 180.0
"""The time for the export of commits; if it is exceeded, changes to files are still kept."""
_END_S = 30.0
_SLACK_S = 10.0
"""The time after its deadline in which a check is ended and its output recorded."""


@frozen
class Delivery:
    """Exports the work of one run from the sandbox, and runs its check."""

    workspace: RunWorkspace
    run_dir: Path
    sandboxes: Sandboxes
    recorder: Recorder
    stops: Stops
    protect: Collection[str] = ()
    """The user's patterns of files that the agent may not write."""

    async def export_work(self) -> Finished:
        """Export the work: commits, if there are any, are packed in a new sandbox; files are kept by a snapshot.

        Raises:
            RingfenceError: The work could not be exported.
        """
        work = await self.workspace.deliver(self._open_export_sandbox)
        await self._record(work, "after")
        return work

    async def discard_work(self) -> None:
        """Discard the changes made inside, and record that nothing was kept.

        Raises:
            InfrastructureFault: The disk is full.
        """
        await self.workspace.discard()

    @asynccontextmanager
    async def _open_export_sandbox(self, placement: Placement) -> AsyncIterator[Sandbox]:
        """Open a sandbox in which commits are packed; close it if that takes too long or the user stops it."""
        is_over = False
        with self.stops.stopped_by_next_interrupt(), anyio.move_on_after(COMMITS_S) as clock:
            async with self.sandboxes.opened("export", placement) as sandbox:
                yield sandbox
            is_over = True
        if clock.cancelled_caught:
            raise SandboxError(f"it took more than {COMMITS_S:g} s; the changes to files are kept")
        if not is_over:
            raise SandboxError(f"{self.stops.reason} meanwhile")

    async def check(self, command: str, work: Finished, *, deadline: float = math.inf) -> Outcome | None:
        """Run the check. Its own changes to the workspace are part of the run, however it ends.

        Args:
            command: The command of the check.
            work: The exported work.
            deadline: The time limit of the run, by the monotonic clock.

        Returns:
            The outcome that it decides; None if it did not end before the deadline.

        Raises:
            RingfenceError: The check could not be run.
        """
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        try:
            with anyio.move_on_after(left_s + _SLACK_S):
                return await self._run_check_in_sandbox(command, work, deadline)
            return None
        finally:
            with anyio.move_on_after(_END_S, shield=True):
                again = await self.workspace.deliver_again(work)
                if again is not None:
                    await self._record(again, "checked")

    async def _run_check_in_sandbox(self, command: str, work: Finished, deadline: float) -> Outcome | None:
        """Choose exactly the delivered files for the check: the workspace itself, or those exported from a clone."""
        from ringfence.job.verification import checked_changes, refuse_check, verify

        placement = self.workspace.placement
        with self.stops.stopped_by_any_interrupt():
            store = open_store(work.record, state_dir())
            changes = await checked_changes(command, work.record, store, self.protect)
            if changes.decisive:
                return await refuse_check(command, changes.decisive, self.recorder)
            async with AsyncExitStack() as stack:
                if work.record.mode == "clone":
                    copy = open_copy(self.workspace.workspace, work.after)
                    placement = await stack.enter_async_context(copy)
                sandbox = await stack.enter_async_context(self.sandboxes.opened("verify", placement))
                return await verify(command, sandbox, self.recorder, changes.caveats, deadline=deadline)
        return Outcome(JobState.CANCELLED, f"{self.stops.reason}, before the check ended")

    async def _record(self, work: Finished, when: str) -> None:
        await self.recorder.emit(checkpoint_created(work.after, when))
        await anyio.to_thread.run_sync(_write_patch, self.run_dir / PATCH_NAME, work.patch)
        await self.recorder.emit(
            WorkExported(
                files_changed=len(work.diff.files),
                insertions=work.diff.insertions,
                deletions=work.diff.deletions,
                patch=PATCH_NAME if work.patch else None,
                refs=sorted(work.record.refs),
                runs_on_your_machine=list(work.runs_on_your_machine),
                files_changed_by_commits=len({file.path for file in work.record.committed}),
                notes=list(dict.fromkeys([*self.workspace.notes, *work.notes, *self.sandboxes.last_notes])),
            )
        )


def checkpoint_created(checkpoint: Snapshot, when: str) -> CheckpointCreated:
    """The event that records a checkpoint."""
    return CheckpointCreated(
        checkpoint=checkpoint.id,
        when=when,
        files=checkpoint.files,
        duration_ms=round(checkpoint.duration_ms, 3),
        tree=checkpoint.tree,
    )


def _write_patch(file: Path, patch: bytes) -> None:
    try:
        file.write_bytes(patch)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
