"""The runs of a loop, and how they are stopped: each has a sandbox and a record of its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from ringfence.config import Effective
from ringfence.errors import RingfenceError
from ringfence.frozen import frozen
from ringfence.job.outcome import RunResult, outcome_of, root_cause
from ringfence.job.resolution import resolved_agent_request
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.job.store import JobStore

Notify = Callable[[str], None]


@frozen
class AgentEnd:
    """How a run of an agent ended."""

    run_id: str
    run_dir: Path | None
    """None: it was not begun."""
    state: JobState
    reason: str
    text: str = ""
    """What the agent said at last."""
    structured: Any = None
    tokens: int = 0
    cost_usd: float = 0.0
    is_misconfigured: bool = False
    """Whether the model's API refused for good how it was asked, and nothing was ever answered."""


class Runs:
    """Does runs, and stops them all when it is told to.

    Args:
        notify: Called with each line that the user should read.
        is_checked: Whether the credentials were asked about already, and no run needs to.
    """

    def __init__(self, *, notify: Notify, is_checked: bool = False) -> None:
        self.notify = notify
        self._is_checked = is_checked
        self.jobs = JobStore()
        self._living: set[JobRun] = set()
        self._stopping = anyio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stop what runs: the first time gently, then at once; nothing new is begun."""
        self._stopping.set()
        for run in [*self._living]:
            run.cancel()

    def wind_down(self) -> None:
        """Stop what runs gently, unless that was asked for already."""
        if not self.is_stopping:
            self.stop()

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until it is told to stop."""
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
        """Let an agent work. Never raises for what goes wrong in it.

        Args:
            prompt: Its task.
            workspace: Where it works.
            effective: The configuration of its run.
            run_id: Names the run.
            schema: Of its answer, for runtimes that can hold it to one.
            keeps_work: Whether files that it changes are kept; of a reviewer only the answer counts.
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
                return self._end(run, await self.do(run))
        except RingfenceError as exc:
            return _not_begun(run_id, exc)
        except BaseExceptionGroup as exc:
            cause = root_cause(exc)
            if not isinstance(cause, RingfenceError):
                raise
            return _not_begun(run_id, cause)

    async def do(self, run: JobRun) -> RunResult:
        """Do a run to its end."""
        self._living.add(run)
        try:
            if self.is_stopping:
                run.cancel()
            result = await run.run()
        finally:
            self._living.discard(run)
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
            is_misconfigured=result.cause == "request_refused" and not tokens,
        )


def _not_begun(run_id: str, error: RingfenceError) -> AgentEnd:
    outcome = outcome_of(error)
    return AgentEnd(run_id, None, outcome.state, outcome.reason)
