"""One run in a fence: prepared, worked, brought out, checked, ended once."""

import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence import __version__
from ringfence.config.paths import state_dir
from ringfence.config.units import format_duration
from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.events import JobCreated, JobEnded, JobStarted, PolicyLoosened
from ringfence.job.claiming import claim
from ringfence.job.closing import unapplied_work
from ringfence.job.crash import keep_crash
from ringfence.job.delivery import Delivery, checkpoint_created
from ringfence.job.host import check_host
from ringfence.job.lending import lent, meanwhile
from ringfence.job.outcome import NOT_CHECKED, Outcome, outcome_of, root_cause
from ringfence.job.recorder import Recorder, View
from ringfence.job.request import Part, RunRequest
from ringfence.job.result import JobResult
from ringfence.job.sandboxes import Sandboxes
from ringfence.job.state import NO_CHECK, JobState, exit_code
from ringfence.job.stopping import Stops
from ringfence.job.store import JobStore
from ringfence.journal import Journal, export, new_run_id, run_dir, write_session
from ringfence.sandbox import Placement
from ringfence.sandbox.registry import examine
from ringfence.sandbox.workspace.open import Workspace
from ringfence.sandbox.workspace.run import RunWorkspace, close, prepare
from ringfence.secret import Redactor

if TYPE_CHECKING:
    from ringfence.egress.gate import Gate
    from ringfence.sandbox.pool.pool import Pool

_END_S = 30.0


@dataclass
class _Progress:
    state: JobState = JobState.QUEUED
    began: float = field(default_factory=time.monotonic)
    is_begun: bool = False
    deadline: float = math.inf
    """By the monotonic clock: of the part inside and the check."""


class JobRun:
    """A run that can be stopped. Use once.

    Args:
        request: What is asked for.
        part: What is done inside.
        view: Is shown each event after it was written.
        store: Where jobs are kept; None is the state directory's.
        run_id: A name for it that nobody has used; None: a new one.
    """

    def __init__(
        self,
        request: RunRequest,
        part: Part,
        *,
        view: View | None = None,
        store: JobStore | None = None,
        run_id: str | None = None,
    ) -> None:
        self.id = run_id or new_run_id()
        self.dir = run_dir(self.id)
        self._request = request
        self._part = part
        self._view = view
        self._store = store or JobStore()
        lent_values = (value for lease in request.leases for value in lease.values)
        self._redactor = Redactor([*request.secrets, *lent_values])
        self._progress = _Progress()
        self._stops = Stops()
        self._problems: list[str] = []
        self._recorder: Recorder | None = None
        self.gates: dict[str, Gate] = {}
        """The ways out of the sandboxes that are open, by their ids."""

    @property
    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars so far, as far as the price is known."""
        recorder = self._recorder
        return recorder.used.known if recorder is not None else (0, 0.0)

    def cancel(self) -> None:
        """Stop: the first time what is inside, whose work is still brought out; the second time everything."""
        self._stops.stop()

    async def run(self) -> JobResult:
        """Do it all. Never raises for what goes wrong in the run: that is its outcome.

        Raises:
            InfrastructureFault: The record could not be started or ended.
        """
        with self._store.held():
            return await self._recorded()

    async def _recorded(self) -> JobResult:
        self._stops.watch_graces()
        journal = Journal.create(self.dir, self.id, enter=self._enter)
        recorder = self._recorder = Recorder(
            journal, self._redactor, self._view, on_view_lost=self._stops.stop
        )
        outcome = Outcome(JobState.CANCELLED, "stopped from outside")
        try:
            outcome = self._redacted(await self._guarded(recorder))
        finally:
            with anyio.move_on_after(_END_S, shield=True):
                ended = await self._end(outcome, recorder, journal)
        return JobResult(
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
            is_request_refused=outcome.is_request_refused,
            is_unwatched=recorder.is_view_lost,
            problems=tuple(self._problems),
        )

    @property
    def _session_id(self) -> str:
        return self._request.session_id or self.id

    def _enter(self) -> None:
        self._store.create(self.id, session_id=self._session_id, workspace=str(self._request.workspace))

    def _redacted(self, outcome: Outcome) -> Outcome:
        return replace(outcome, reason=self._redactor.redact(outcome.reason))

    async def _guarded(self, recorder: Recorder) -> Outcome:
        try:
            with self._stops.whole:
                return await self._work(recorder)
            return Outcome(JobState.CANCELLED, f"{self._stops.reason}, at once")
        except Exception as exc:  # noqa: BLE001 -- the boundary of a run: kept beside the record and told
            return self._outcome_of(exc)

    def _outcome_of(self, error: Exception) -> Outcome:
        """What an error means; one of our own making is kept whole beside the record."""
        cause = root_cause(error)
        if isinstance(cause, RingfenceError):
            return outcome_of(cause)
        crash, problem = keep_crash(error, self.dir, self._redactor)
        self._problems += [problem] if problem else []
        return outcome_of(cause, kept_in=crash)

    async def _work(self, recorder: Recorder) -> Outcome:
        request = self._request
        await self._announce(recorder)
        async with lent(request.leases, run=self.id, redactor=self._redactor, emit=recorder.emit):
            return await self._fenced(recorder)

    async def _fenced(self, recorder: Recorder) -> Outcome:
        request = self._request
        self._move(JobState.STARTING)
        traits = await examine(request.spec)
        if not traits.is_fence:
            check_host(request.spec, traits, request.protect)
        async with AsyncExitStack() as stack:
            workspace = await claim(stack, request, self._stops, run=self.id, traits=traits)
            if workspace is None:
                return Outcome(JobState.CANCELLED, self._stops.reason)
            return await self._claimed(recorder, workspace)

    async def _claimed(self, recorder: Recorder, workspace: Workspace) -> Outcome:
        request = self._request
        prepared: RunWorkspace | None = None
        try:
            async with meanwhile(request.precheck) as checked:
                prepared = await prepare(
                    workspace,
                    run=self.id,
                    run_dir=self.dir,
                    protect=request.protect,
                    earlier=await unapplied_work(request.continues) if request.continues else None,
                )
                await recorder.emit(checkpoint_created(prepared.before, "before"))
                sandboxes = self._sandboxes(recorder, self._pool() if workspace.traits.is_fence else None)
                outcome = await self._inside(prepared.placement, sandboxes, recorder, checked)
        finally:
            if prepared is not None and not self._progress.is_begun:
                await self._closed(prepared)
        if self._progress.is_begun:
            delivery = Delivery(prepared, self.dir, sandboxes, recorder, self._stops, self._request.protect)
            outcome = await self._after(outcome, delivery)
        return outcome

    async def _closed(self, prepared: RunWorkspace) -> None:
        """Keep the state after a run that did not begin: what somebody writes later is no work of it."""
        try:
            await close(prepared.record, self.dir, state_dir())
        except RingfenceError as exc:
            self._problems.append(self._redactor.redact(str(exc)))

    def _pool(self) -> "Pool | None":
        request = self._request
        if request.pool is None:
            return None
        from ringfence.sandbox.pool.pool import Pool

        values = [value for lease in request.leases for value in lease.values]
        return Pool(state_dir() / "pool", request.pool, secrets=[*request.secrets, *values])

    def _sandboxes(self, recorder: Recorder, pool: "Pool | None") -> Sandboxes:
        request = self._request
        return Sandboxes(
            request.spec,
            self.id,
            self._store,
            recorder,
            pool,
            request.model_access.gateway if request.model_access is not None else None,
            self.gates,
            injected=request.injected,
            leases=request.leases,
        )

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

    async def _inside(
        self,
        placement: Placement,
        sandboxes: Sandboxes,
        recorder: Recorder,
        checked: Callable[[], Awaitable[None]],
    ) -> Outcome:
        """The part inside, once `checked`, in its own sandbox, which is dead when this returns."""
        limit_s = self._request.wall_clock_s
        self._progress.deadline = time.monotonic() + (math.inf if limit_s is None else limit_s)
        try:
            with self._stops.gentle(), anyio.move_on_after(limit_s) as clock:
                opened = sandboxes.opened(self._request.purpose, placement, checked=checked)
                async with opened as sandbox:
                    self._move(JobState.RUNNING)
                    self._progress.is_begun = True
                    await recorder.emit(JobStarted())
                    return await self._part(sandbox, recorder.emit)
        except Exception as exc:  # noqa: BLE001 -- whatever it was, the work is brought out
            return self._outcome_of(exc)
        if clock.cancelled_caught:
            return self._timed_out("")
        return Outcome(JobState.CANCELLED, self._stops.reason)

    def _timed_out(self, when: str) -> Outcome:
        limit = format_duration(self._request.wall_clock_s or 0)
        advice = "raise it with --timeout, or limits.wall_clock in ringfence.yaml"
        return Outcome(JobState.TIMED_OUT, f"the time limit of {limit} was reached{when}; {advice}")

    async def _after(self, outcome: Outcome, delivery: Delivery) -> Outcome:
        """Bring the work out, whatever the outcome; check it if the agent came to its end."""
        work = await delivery.bring_out()
        if outcome.state is not JobState.UNVERIFIED:
            return outcome
        if self._request.check is None:
            if self._stops.is_stopping:
                return Outcome(JobState.CANCELLED, f"{self._stops.reason}, while its work was brought out")
            return self._unchecked(outcome)
        checked = await delivery.check(self._request.check, work, deadline=self._progress.deadline)
        return self._timed_out(" before the check was over") if checked is None else checked

    def _unchecked(self, outcome: Outcome) -> Outcome:
        if self._request.verify is None:
            return outcome
        return replace(outcome, reason=outcome.reason.replace(NOT_CHECKED, "no check was wanted"))

    def _move(self, state: JobState) -> None:
        if not self._store.move(self.id, self._progress.state, state):
            raise InfrastructureFault(
                f"run {self.id!r} was ended by another process; see `ringfence audit show {self.id[-8:]}`"
            )
        self._progress.state = state

    async def _end(self, outcome: Outcome, recorder: Recorder, journal: Journal) -> JobEnded:
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
            duration_s=round(time.monotonic() - self._progress.began, 3),
        )
        session: bytes | None = None
        try:
            await recorder.emit(ended)
            session = await self._session()
        finally:
            await journal.finish(session=session)
        # The record is whole; what follows are copies of what it says.
        try:
            self._move(outcome.state)
            if session is not None:
                await anyio.to_thread.run_sync(write_session, self.dir, session)
        except RingfenceError as exc:
            self._problems.append(self._redactor.redact(str(exc)))
        return ended

    async def _session(self) -> bytes | None:
        """The session file's contents; None where the journal cannot be read."""
        try:
            return await anyio.to_thread.run_sync(lambda: export(self.dir).encode())
        except RingfenceError as exc:
            self._problems.append(self._redactor.redact(str(exc)))
            return None
