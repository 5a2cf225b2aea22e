"""Executes the runs of a loop, each in a separate sandbox and with a separate record, and stops them on request."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from ringfence.config import Effective
from ringfence.errors import RingfenceError
from ringfence.frozen import frozen
from ringfence.job.outcome import RunResult, outcome_of, root_cause
from ringfence.job.request import Notify
from ringfence.job.resolution import resolved_agent_request
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.job.store import JobStore
from ringfence.sandbox.workspace.snapshot.diff import Diff


@frozen
class AgentEnd:
    """How a run of an agent ended."""

    run_id: str
    run_dir: Path | None
    """None: the run was not started."""
    state: JobState
    reason: str
    text: str = ""
    """The agent's last message."""
    structured: Any = None
    tokens: int = 0
    cost_usd: float = 0.0
    diff: Diff | None = None
    """What the agent changed in files; None: nothing was kept."""
    is_misconfigured: bool = False
    """Whether the model's API rejected the request as invalid without ever answering."""


class Runs:
    """Executes runs, and stops all of them on request.

    Args:
        notify: Called with each line that the user should read.
        is_checked: Whether the credentials were validated already, so that runs need not do it.
    """

    def __init__(self, *, notify: Notify, is_checked: bool = False) -> None:
        self.notify = notify
        self._is_checked = is_checked
        self.jobs = JobStore()
        self._active: set[JobRun] = set()
        self._stopping = anyio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Cancel all runs, and start no more. The first call stops them gracefully, the second immediately."""
        self._stopping.set()
        for run in [*self._active]:
            run.cancel()

    def stop_gracefully(self) -> None:
        """Stop all runs gracefully; no effect if they are stopping already."""
        if not self.is_stopping:
            self.stop()

    async def pause(self, seconds: float) -> None:
        """Wait, at most until `stop` is called."""
        with anyio.move_on_after(seconds):
            await self._stopping.wait()

    async def agent(
        self,
        prompt: str,
        workspace: Path,
        effective: Effective,
        *,
        run_id: str,
        schema: dict[str, Any] | None = None,
        keeps_work: bool = True,
    ) -> AgentEnd:
        """Run an agent. Errors of the run become the state of the result.

        Args:
            prompt: The agent's task.
            workspace: The agent's workspace.
            effective: The configuration of the run.
            run_id: The id of the new run.
            schema: The schema of the answer, for runtimes that can enforce one.
            keeps_work: Whether changed files are kept. False for roles of which only the answer counts.
        """
        try:
            opened = resolved_agent_request(
                prompt,
                workspace,
                effective,
                notify=self.notify,
                answer_schema=schema,
                is_checked=self._is_checked,
            )
            async with opened as request:
                run = JobRun(replace(request, keeps_work=keeps_work), run_id=run_id, store=self.jobs)
                return self._end(run, await self.execute(run))
        except RingfenceError as exc:
            return _not_started(run_id, exc)
        except BaseExceptionGroup as exc:
            cause = root_cause(exc)
            if not isinstance(cause, RingfenceError):
                raise
            return _not_started(run_id, cause)

    async def execute(self, run: JobRun) -> RunResult:
        """Execute a run and return its result; its problems are passed to `notify`."""
        self._active.add(run)
        try:
            if self.is_stopping:
                run.cancel()
            result = await run.run()
        finally:
            self._active.discard(run)
        for problem in result.problems:
            self.notify(problem)
        return result

    def _end(self, run: JobRun, result: RunResult) -> AgentEnd:
        tokens, cost = run.spent
        return AgentEnd(
            run.id,
            result.run_dir,
            result.state,
            result.reason,
            result.final_text,
            result.structured_output,
            tokens,
            cost,
            run.diff,
            is_misconfigured=result.cause == "request_refused" and not tokens,
        )


def _not_started(run_id: str, error: RingfenceError) -> AgentEnd:
    outcome = outcome_of(error)
    return AgentEnd(run_id, None, outcome.state, outcome.reason)
