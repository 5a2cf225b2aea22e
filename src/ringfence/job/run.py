"""One run in a sandbox, from top to bottom: prepare, work, deliver, verify, seal.

The module for questions is imported only if a run may ask one, as most commands ask none.
"""

import math
import time
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence import __version__
from ringfence.config.paths import state_dir
from ringfence.config.units import format_duration
from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.events import Emit, JobCreated, JobEnded, JobStarted, PolicyLoosened
from ringfence.job.credentials import concurrent_probe, recorded_leases
from ringfence.job.delivery import Delivery, checkpoint_created
from ringfence.job.outcome import Outcome, RunResult, keep_crash, outcome_of, root_cause
from ringfence.job.recorder import Recorder, View
from ringfence.job.request import CustomWork, RunRequest
from ringfence.job.resumed_run import unapplied_work
from ringfence.job.run_process import note_process
from ringfence.job.sandbox_spec import check_host
from ringfence.job.sandboxes import Sandboxes
from ringfence.job.state import NO_CHECK, JobState, exit_code
from ringfence.job.stops import Stops
from ringfence.job.store import JobStore
from ringfence.journal import Journal, export, new_run_id, run_dir, write_session
from ringfence.sandbox import Sandbox
from ringfence.sandbox.registry import examine
from ringfence.sandbox.workspace.lock import WorkspaceBusy
from ringfence.sandbox.workspace.open import Workspace, open_workspace
from ringfence.sandbox.workspace.run import Finished, RunWorkspace, close, prepare
from ringfence.sandbox.workspace.snapshot.diff import Diff
from ringfence.secret import Redactor

if TYPE_CHECKING:
    from ringfence.egress.gate import Gate
    from ringfence.job.question import Question, QuestionWatch
    from ringfence.sandbox.base import Traits

_SEAL_S = 30.0
_POLL_S = 0.1
_CANCELLED = Outcome(JobState.CANCELLED, "stopped from outside")


class JobRun:
    """A run that can be stopped. Use once.

    Args:
        request: What the run does.
        view: Shows each event after it was written. An exception from it stops the run.
        store: The store of jobs; None: the one in the state directory.
        run_id: An unused id; None: a new one.
        ends_on_sigterm: Whether this process calls `cancel` on SIGTERM and does nothing but this run.
        when_cancelled: The outcome of the run if the caller's cancel scope ends it.
    """

    def __init__(
        self,
        request: RunRequest,
        *,
        view: View | None = None,
        store: JobStore | None = None,
        run_id: str | None = None,
        ends_on_sigterm: bool = False,
        when_cancelled: Outcome = _CANCELLED,
    ) -> None:
        self.id = run_id or new_run_id()
        self.dir = run_dir(self.id)
        self.gates: dict[str, Gate] = {}
        """The gates of the open sandboxes, by sandbox id."""
        self.diff: Diff | None = None
        """What the work changed in files; None: nothing was kept."""
        self.changed_files: frozenset[bytes] | None = None
        """The files of the workspace that the work changed or removed, if the request has `finds_changed_files`."""
        self._request = request
        self._ends_on_sigterm = ends_on_sigterm
        self._when_cancelled = when_cancelled
        self._view = view
        self._store = store or JobStore()
        self._redactor = Redactor(request.secret_values)
        self._stops = Stops()
        self._questions = _question_watch(request)
        self._state = JobState.QUEUED
        self._started_at = time.monotonic()
        self._work_started = False
        self._workspace: RunWorkspace | None = None
        self._deadline = math.inf
        """The deadline of the work and of the check, by the monotonic clock."""
        self._problems: list[str] = []
        self._recorder: Recorder | None = None

    @property
    def view_error(self) -> Exception | None:
        """The exception that the view raised, if it raised one."""
        return self._recorder.view_error if self._recorder is not None else None

    @property
    def spent(self) -> tuple[int, float]:
        """The tokens and US dollars spent so far, as far as prices are known."""
        return self._recorder.used.known if self._recorder is not None else (0, 0.0)

    def cancel(self, reason: str | None = None) -> None:
        """Stop: the first call stops the work inside, whose result is still delivered; the second stops everything.

        Args:
            reason: Why the run stops; None: the user requested it.
        """
        self._stops.stop(reason)

    async def run(self) -> RunResult:
        """Run to the end. A failure of the run is an outcome, not an exception.

        Raises:
            InfrastructureFault: The record could not be created or sealed.
            Exception: The view raised it; the record is sealed. An `OSError` of the view, whose reader has left, is not
                raised.
        """
        with self._store.held():
            self._stops.watch_graces()
            journal = Journal.create(self.dir, self.id, on_locked=self._enter_job)
            recorder = Recorder(
                journal,
                self._redactor,
                self._view,
                on_view_error=self._stops.stop,
                on_event=self._questions.take if self._questions is not None else None,
            )
            self._recorder = recorder
            outcome = self._when_cancelled
            try:
                outcome = await self._run_phases(recorder)
                outcome = replace(outcome, reason=self._redactor.redact(outcome.reason))
            finally:
                with anyio.move_on_after(_SEAL_S, shield=True):
                    ended = await self._end_record(outcome, recorder, journal)
        if self.view_error is not None and not isinstance(self.view_error, OSError):
            raise self.view_error
        return RunResult(
            run_id=self.id,
            run_dir=self.dir,
            state=outcome.state,
            reason=outcome.reason,
            exit_code=ended.exit_code,
            final_text=recorder.final_text,
            structured_output=recorder.structured_output,
            ended=ended,
            work=recorder.work,
            command_exit_code=outcome.command_exit_code,
            cause=outcome.cause,
            question=self._question_of(outcome),
            is_unwatched=recorder.view_error is not None,
            problems=tuple(self._problems),
        )

    async def _run_phases(self, recorder: Recorder) -> Outcome:
        """Run all phases except the seal. Work that has begun is delivered, however it ended."""
        try:
            with self._stops.run:
                async with AsyncExitStack() as stack:
                    delivery = await self._prepare(stack, recorder)
                    if delivery is None:
                        return Outcome(JobState.CANCELLED, self._stops.reason)
                    outcome = await self._work(delivery, recorder)
                    if not self._work_started:
                        return outcome
                    work = await delivery.export_work() if self._request.keeps_work else None
                    if work is None:
                        if self._request.finds_changed_files:
                            self.changed_files = await delivery.workspace.changed_files()
                        await delivery.discard_work()
                    else:
                        self.diff = work.diff
                    return await self._decide_outcome(outcome, delivery, work)
            # Only reached when the second interrupt cancelled the scope.
            return Outcome(JobState.CANCELLED, f"{self._stops.reason}, at once")
        except Exception as exc:  # noqa: BLE001 -- the boundary of a run: the error is its outcome
            return self._outcome_of(exc)

    def _outcome_of(self, error: Exception) -> Outcome:
        """Return the outcome of an error; keep the traceback of a bug beside the record."""
        cause = root_cause(error)
        if isinstance(cause, RingfenceError):
            return outcome_of(cause)
        crash, problem = keep_crash(error, self.dir, self._redactor)
        self._problems += [problem] if problem else []
        return outcome_of(cause, kept_in=crash)

    def _move(self, state: JobState) -> None:
        if not self._store.move(self.id, self._state, state):
            raise InfrastructureFault(
                f"run {self.id!r} was ended by another process; see `ringfence runs logs {self.id[-8:]}`"
            )
        self._state = state

    # --- prepare ---

    def _enter_job(self) -> None:
        self._store.create(self.id, session_id=self._session_id, workspace=str(self._request.workspace))
        if self._ends_on_sigterm:
            note_process(self.dir)

    @property
    def _session_id(self) -> str:
        return self._request.session_id or self.id

    async def _prepare(self, stack: AsyncExitStack, recorder: Recorder) -> Delivery | None:
        """Record the request, lease its secrets, lock its workspace, and create the first checkpoint.

        Returns:
            The delivery of the work, usable until `stack` is closed; None if the user stopped the run while it waited.
        """
        request = self._request
        await self._record_request(recorder)
        leases = recorded_leases(request.leases, run=self.id, redactor=self._redactor, emit=recorder.emit)
        await stack.enter_async_context(leases)
        self._move(JobState.STARTING)
        traits = await examine(request.spec)
        if not traits.is_fence:
            check_host(request.spec, traits, request.protect)
        workspace = await self._lock_workspace(stack, traits)
        if workspace is None:
            return None
        if not request.keeps_work and (workspace.mode == "bind" or request.check is not None):
            raise UsageError(
                f"keeps_work=False, with mode {workspace.mode!r} and check {request.check!r}: what is changed in the "
                "workspace itself cannot be discarded, nor checked afterwards; use mode 'clone' and no check"
            )
        stack.push_async_callback(self._snapshot_unstarted_run)
        wait_for_probe = await stack.enter_async_context(concurrent_probe(request.credential_probe))
        prepared = self._workspace = await prepare(
            workspace,
            run=self.id,
            run_dir=self.dir,
            protect=request.protect,
            earlier=await unapplied_work(request.continues) if request.continues else None,
        )
        await recorder.emit(checkpoint_created(prepared.before, "before"))
        sandboxes = Sandboxes(
            request, self.id, self._store, recorder, self.gates, wait_for_probe, is_fence=traits.is_fence
        )
        return Delivery(prepared, self.dir, sandboxes, recorder, self._stops, request.protect)

    async def _record_request(self, recorder: Recorder) -> None:
        request, agent, work = self._request, self._request.agent, self._request.work
        await recorder.emit(
            JobCreated(
                job_id=self.id,
                session_id=self._session_id,
                prompt=work.prompt,
                model=agent.model if agent is not None else "",
                runtime=work.runtime,
                toolset=agent.toolset_used if agent is not None else "",
                workspace=str(request.workspace),
                version=__version__,
                configuration=dict(request.configuration),
                continues=request.continues,
            )
        )
        for what, by in request.loosenings:
            await recorder.emit(PolicyLoosened(what=what, by=by))
        for answered in request.answers:
            await recorder.emit(answered)

    async def _lock_workspace(self, stack: AsyncExitStack, traits: "Traits") -> Workspace | None:
        """Open the workspace until `stack` is closed; None if the user stopped the run while it waited.

        Raises:
            PolicyRefused: The directory may not be a workspace, or another run still holds it after `wait_s`.
        """
        request = self._request
        deadline = time.monotonic() + request.wait_s
        on_wait = request.on_wait
        with self._stops.stopped_by_any_interrupt():
            while True:
                opening = open_workspace(
                    request.workspace, request.spec.mode, state=state_dir(), holder=self.id, traits=traits
                )
                try:
                    return await stack.enter_async_context(opening)
                except WorkspaceBusy as exc:
                    if time.monotonic() >= deadline:
                        raise
                    if on_wait is not None:
                        on_wait(exc.problem)
                        on_wait = None
                await anyio.sleep(_POLL_S)
        return None

    async def _snapshot_unstarted_run(self) -> None:
        """Snapshot the workspace of a run whose work did not begin, so that later changes are not taken for its own."""
        if self._workspace is None or self._work_started:
            return
        try:
            await close(self._workspace.record, self.dir, state_dir())
        except RingfenceError as exc:
            self._problems.append(self._redactor.redact(str(exc)))

    # --- work ---

    async def _work(self, delivery: Delivery, recorder: Recorder) -> Outcome:
        """Do the work in a separate sandbox, which is closed when this returns."""
        request = self._request
        limit_s = request.wall_clock_s
        self._deadline = time.monotonic() + (math.inf if limit_s is None else limit_s)
        placement = delivery.workspace.placement
        outcome: Outcome | None = None
        try:
            with (
                self._stops.stopped_by_any_interrupt(),
                anyio.move_on_after(limit_s) as clock,
                self._questions.watching() if self._questions is not None else nullcontext(),
            ):
                async with delivery.sandboxes.opened(request.purpose, placement) as sandbox:
                    self._move(JobState.RUNNING)
                    self._work_started = True
                    await recorder.emit(JobStarted())
                    outcome = await _do_work(request, sandbox, recorder.emit)
        except Exception as exc:  # noqa: BLE001 -- the work is delivered after any error
            if self._questions is not None:
                self._questions.take_error(root_cause(exc))
            outcome = self._outcome_of(exc)
        if self._questions is not None and self._questions.question is not None:
            return Outcome(JobState.BLOCKED, f"{self._questions.question.reason}, and waits for an answer")
        if outcome is not None:
            return outcome
        if clock.cancelled_caught:
            return self._timed_out("")
        return Outcome(JobState.CANCELLED, self._stops.reason)

    def _question_of(self, outcome: Outcome) -> "Question | None":
        """The question of a run that ended with one."""
        if self._questions is None or outcome.state is not JobState.BLOCKED:
            return None
        return self._questions.question

    def _timed_out(self, when: str) -> Outcome:
        limit = format_duration(self._request.wall_clock_s or 0)
        advice = "raise it with --timeout, or limits.wall_clock in ringfence.yaml"
        return Outcome(JobState.TIMED_OUT, f"the time limit of {limit} was reached{when}; {advice}")

    # --- verify ---

    async def _decide_outcome(self, outcome: Outcome, delivery: Delivery, work: Finished | None) -> Outcome:
        """Return the outcome of the check if there is one and the agent has finished; otherwise that of the agent."""
        request = self._request
        if outcome.state is not JobState.UNVERIFIED:
            return outcome
        if request.check is not None:
            assert work is not None
            checked = await delivery.check(request.check, work, deadline=self._deadline)
            return self._timed_out(" before the check ended") if checked is None else checked
        if self._stops.is_stopping:
            return Outcome(JobState.CANCELLED, f"{self._stops.reason}, while its work was exported")
        note = "nothing checked it" if request.verify is None else "no check was wanted"
        return replace(outcome, reason=f"{outcome.reason}; {note}")

    # --- seal ---

    async def _end_record(self, outcome: Outcome, recorder: Recorder, journal: Journal) -> JobEnded:
        question = self._question_of(outcome)
        ended = JobEnded(
            state=outcome.state,
            exit_code=exit_code(
                outcome.state,
                require_verified=self._request.require_verified,
                is_check_wanted=self._request.verify != NO_CHECK,
                command_exit_code=outcome.command_exit_code,
            ),
            reason=outcome.reason,
            turns=recorder.used.turns,
            tool_calls=recorder.tool_calls,
            usage=recorder.used.usage,
            cost_usd=recorder.used.cost_usd,
            duration_s=round(time.monotonic() - self._started_at, 3),
            question=question.as_json if question is not None else None,
        )
        session: bytes | None = None
        try:
            await recorder.emit(ended)
            session = await self._export_session()
        finally:
            await journal.finish(session=session)
        # The record is complete; the rest only copies parts of it.
        try:
            self._move(outcome.state)
            if session is not None:
                await anyio.to_thread.run_sync(write_session, self.dir, session)
        except RingfenceError as exc:
            self._problems.append(self._redactor.redact(str(exc)))
        return ended

    async def _export_session(self) -> bytes | None:
        """Return the contents of the session file; None if the journal cannot be read."""
        try:
            return await anyio.to_thread.run_sync(lambda: export(self.dir).encode())
        except RingfenceError as exc:
            self._problems.append(self._redactor.redact(str(exc)))
            return None


def _question_watch(request: RunRequest) -> "QuestionWatch | None":
    """The watch for refusals that the run asks about; None if it asks no questions, like most commands."""
    if not request.asks:
        return None
    from ringfence.job.question import QuestionWatch

    if request.agent is None:
        return QuestionWatch(request.asks)
    from ringfence.job.agent import may_permit

    return QuestionWatch(
        request.asks,
        denied=request.agent.options.tools_denied,
        may_permit=partial(may_permit, request.agent),
    )


async def _do_work(request: RunRequest, sandbox: Sandbox, emit: Emit) -> Outcome:
    if isinstance(request.work, CustomWork):
        assert request.work.run is not None
        return await request.work.run(sandbox, emit)
    from ringfence.job.agent import run_runtime

    assert request.model_access is not None
    return await run_runtime(request.work, request.model_access, sandbox, emit)
