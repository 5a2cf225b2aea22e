"""One run in a fence: prepared, worked, brought out, checked, ended once."""

import time
import traceback
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ringfence import __version__
from ringfence.config.paths import state_dir
from ringfence.errors import ExitCode, RingfenceError
from ringfence.events import CheckpointCreated, JobCreated, JobEnded, JobStarted, PolicyLoosened, WorkExported
from ringfence.job.outcome import Outcome, outcome_of
from ringfence.job.recorder import Recorder, View
from ringfence.job.request import Part, RunRequest
from ringfence.job.sandboxes import opened_sandbox
from ringfence.job.state import JobState, exit_code
from ringfence.job.store import JobStore
from ringfence.job.verification import verify
from ringfence.journal import Journal, new_run_id, run_dir, write_session
from ringfence.sandbox import Sandbox
from ringfence.sandbox.workspace.prepare import Prepared, finish, prepare
from ringfence.sandbox.workspace.store import Checkpoint
from ringfence.secret import Redactor

PATCH_NAME = "work.patch"
_END_S = 30.0


@dataclass(frozen=True)
class JobResult:
    """How a run ended and where its record is."""

    run_id: str
    run_dir: Path
    state: JobState
    reason: str
    exit_code: ExitCode
    final_text: str
    command_exit_code: int | None = None
    """Of the user's own command, in runs that are one."""


@dataclass
class _Progress:
    state: JobState = JobState.QUEUED
    began: float = field(default_factory=time.monotonic)
    is_begun: bool = False


class JobRun:
    """A run that can be stopped. Use once.

    Args:
        request: What is asked for.
        part: What is done inside.
        view: Is shown each event after it was written.
        store: Where jobs are kept; None is the state directory's.
    """

    def __init__(
        self, request: RunRequest, part: Part, *, view: View | None = None, store: JobStore | None = None
    ) -> None:
        self.id = new_run_id()
        self.dir = run_dir(self.id)
        self._request = request
        self._part = part
        self._view = view
        self._store = store or JobStore()
        self._progress = _Progress()
        self._agent_scope = anyio.CancelScope()
        self._whole_scope = anyio.CancelScope()
        self._cancels = 0

    def cancel(self) -> None:
        """Stop: the first time the agent, whose work is still brought out; the second time everything."""
        self._cancels += 1
        (self._agent_scope if self._cancels == 1 else self._whole_scope).cancel()

    async def run(self) -> JobResult:
        """Do it all. Never raises for what goes wrong in the run: that is its outcome.

        Raises:
            InfrastructureFault: The record could not be started or ended.
        """
        journal = Journal.create(self.dir, self.id)
        redactor = Redactor([*self._request.secrets])
        recorder = Recorder(journal, redactor, self._view)
        self._store.create(self.id, session_id=self._session_id, workspace=str(self._request.workspace))
        outcome = Outcome(JobState.CANCELLED, "stopped from outside")
        try:
            outcome = await self._guarded(recorder)
        finally:
            with anyio.move_on_after(_END_S, shield=True):
                code = await self._end(outcome, recorder, journal)
        return JobResult(
            run_id=self.id,
            run_dir=self.dir,
            state=outcome.state,
            reason=outcome.reason,
            exit_code=code,
            final_text=recorder.final_text,
            command_exit_code=outcome.command_exit_code,
        )

    @property
    def _session_id(self) -> str:
        return self._request.session_id or self.id

    async def _guarded(self, recorder: Recorder) -> Outcome:
        try:
            with self._whole_scope:
                return await self._work(recorder)
            return Outcome(JobState.CANCELLED, "stopped at once by the user")
        except RingfenceError as exc:
            return outcome_of(exc)
        except Exception as exc:  # noqa: BLE001 -- the boundary of a run: kept beside the record and told
            (self.dir / "error.txt").write_text(traceback.format_exc())
            return outcome_of(exc)

    async def _work(self, recorder: Recorder) -> Outcome:
        await self._announce(recorder)
        self._move(JobState.STARTING)
        prepared = await prepare(
            self._request.workspace,
            self._request.spec.mode,
            run=self.id,
            run_dir=self.dir,
            state=state_dir(),
        )
        await recorder.emit(_checkpoint(prepared.before, "before"))
        outcome = await self._inside(prepared, recorder)
        if self._progress.is_begun:
            outcome = await self._after(prepared, outcome, recorder)
        return outcome

    async def _announce(self, recorder: Recorder) -> None:
        request = self._request
        await recorder.emit(
            JobCreated(
                job_id=self.id,
                session_id=self._session_id,
                prompt=request.prompt,
                model=request.model,
                runtime=request.runtime,
                toolset=request.toolset,
                workspace=str(request.workspace),
                version=__version__,
                configuration=dict(request.configuration),
                continues=request.continues,
            )
        )
        for what, by in request.loosenings:
            await recorder.emit(PolicyLoosened(what=what, by=by))

    async def _inside(self, prepared: Prepared, recorder: Recorder) -> Outcome:
        """The part inside, in its own sandbox, which is dead when this returns."""
        limit_s = self._request.wall_clock_s
        try:
            with self._agent_scope, anyio.move_on_after(limit_s) as clock:
                async with self._sandbox(self._request.purpose, prepared, recorder) as sandbox:
                    self._move(JobState.RUNNING)
                    self._progress.is_begun = True
                    await recorder.emit(JobStarted())
                    return await self._part(sandbox, recorder.emit)
        except RingfenceError as exc:
            return outcome_of(exc)
        if clock.cancelled_caught:
            return Outcome(
                JobState.TIMED_OUT, f"the time limit of {limit_s:g} s was reached; raise it with --timeout"
            )
        return Outcome(JobState.CANCELLED, "stopped by the user")

    async def _after(self, prepared: Prepared, outcome: Outcome, recorder: Recorder) -> Outcome:
        """Bring the work out, whatever the outcome; check it if the agent came to its end."""
        await self._bring_out(prepared, recorder)
        if outcome.state is not JobState.UNVERIFIED or self._request.verify is None:
            return outcome
        async with self._sandbox("verify", prepared, recorder) as sandbox:
            return await verify(self._request.verify, sandbox, recorder)

    async def _bring_out(self, prepared: Prepared, recorder: Recorder) -> None:
        """Keep what was made: commits through a bundle made in a new sandbox, files by a checkpoint."""
        if prepared.private is None:
            work = await finish(prepared, None)
        else:
            async with self._sandbox("export", prepared, recorder) as sandbox:
                work = await finish(prepared, sandbox)
        await recorder.emit(_checkpoint(work.after, "after"))
        (self.dir / PATCH_NAME).write_bytes(work.patch)
        await recorder.emit(
            WorkExported(
                files_changed=len(work.diff.files),
                insertions=work.diff.insertions,
                deletions=work.diff.deletions,
                patch=PATCH_NAME if work.patch else None,
                refs=sorted(work.record.refs),
                runs_on_your_machine=list(work.runs_on_your_machine),
                notes=list(work.notes),
            )
        )

    def _sandbox(
        self, purpose: str, prepared: Prepared, recorder: Recorder
    ) -> AbstractAsyncContextManager[Sandbox]:
        spec = self._request.spec
        if purpose == "export":
            spec = spec.model_copy(update={"setup": ()})
        return opened_sandbox(
            spec, prepared.placement, purpose, job_id=self.id, store=self._store, recorder=recorder
        )

    def _move(self, state: JobState) -> None:
        self._store.move(self.id, self._progress.state, state)
        self._progress.state = state

    async def _end(self, outcome: Outcome, recorder: Recorder, journal: Journal) -> ExitCode:
        code = exit_code(outcome.state, require_verified=self._request.require_verified)
        try:
            await recorder.emit(
                JobEnded(
                    state=outcome.state,
                    exit_code=code,
                    reason=outcome.reason,
                    turns=recorder.turns,
                    tool_calls=recorder.tool_calls,
                    usage=recorder.usage,
                    cost_usd=recorder.cost_usd,
                    duration_s=round(time.monotonic() - self._progress.began, 3),
                )
            )
        finally:
            await journal.finish()
            self._move(outcome.state)
        await anyio.to_thread.run_sync(write_session, self.dir)
        return code


def _checkpoint(checkpoint: Checkpoint, when: str) -> CheckpointCreated:
    return CheckpointCreated(
        checkpoint=checkpoint.id,
        when=when,
        files=checkpoint.files,
        duration_ms=round(checkpoint.duration_ms, 3),
    )
