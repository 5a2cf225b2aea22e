"""What a run goes on with, by `--continue`, `--resume` and `--fork`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import UsageError
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.config.model import Settings
    from ringfence.job.agent_request import AgentRequest
    from ringfence.job.asked.lending import Tell
    from ringfence.job.continuing import Continuation
    from ringfence.runtime.session import CarriedSession


@frozen
class GoingOn:
    """What is asked for."""

    reference: str | None = None
    """Of a run or session; None: the last run's on the workspace."""
    is_forked: bool = False


def going_on(*, continue_: bool, resume: str | None, fork: bool) -> GoingOn | None:
    """What the options ask for; None for a session that is begun anew.

    Raises:
        UsageError: They do not go together.
    """
    if continue_ and resume is not None:
        raise UsageError("--continue is the last run's session, and --resume names one; give one of the two")
    if fork and not continue_ and resume is None:
        raise UsageError("--fork goes with --continue or --resume, which say what is forked")
    if not continue_ and resume is None:
        return None
    return GoingOn(None if resume == "last" else resume, fork)


async def earlier_of(asked: GoingOn | None, workspace: Path, tell: "Tell") -> "Continuation":
    """What is gone on with; empty if nothing is.

    Raises:
        UsageError: There is no such run, or it still goes on.
    """
    import anyio.to_thread

    from ringfence.job.continuing import Continuation, last_run_of, run_of
    from ringfence.job.sweep import close_the_dead

    if asked is None:
        return Continuation()
    await close_the_dead(tell)
    if asked.reference is None:
        earlier = await anyio.to_thread.run_sync(last_run_of, workspace)
    else:
        earlier = await anyio.to_thread.run_sync(run_of, asked.reference)
    return replace(earlier, is_forked=asked.is_forked)


@contextmanager
def held(
    earlier: "Continuation", agent: "AgentRequest", settings: "Settings", workspace: Path
) -> "Iterator[CarriedSession | None]":
    """Hold the session of an agent that is a client; others have theirs in the record.

    Raises:
        UsageError: It is another run's, or of another workspace or runtime; or nothing of it was kept.
        InfrastructureFault: It cannot be written.
    """
    from uuid import uuid4

    from ringfence.config.paths import state_dir
    from ringfence.job.continuing import check_context, differences
    from ringfence.runtime.session import SessionPlan, carried

    told: list[str] = []
    if earlier.created is not None:
        check_context(earlier.created, workspace=workspace, runtime=agent.runtime)
        told = differences(earlier.created, model=agent.model, configuration=settings.model_dump(mode="json"))
    if agent.runtime == "api":
        yield None
        return
    is_new = earlier.session_id is None or earlier.is_forked
    plan = SessionPlan(
        id=str(uuid4()) if is_new else str(earlier.session_id),
        client=agent.runtime,
        workspace=str(workspace),
        state=state_dir(),
        resumes=earlier.session_id,
        run=earlier.run_id or "",
        differences=tuple(told),
    )
    with carried(plan) as session:
        yield session
