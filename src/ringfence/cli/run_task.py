"""What `ringfence run` does, once its words are read."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.saying import say
from ringfence.cli.settings import load_settings, wait_of, warn_about
from ringfence.cli.task import read_task
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.job.asked.session import GoingOn
    from ringfence.job.request import AgentRequest, Part, RunRequest
    from ringfence.runtime.limits import Limits


def run_task(
    prompt: str | None,
    file: Path | None = None,
    workspace: Path = Path(),
    *,
    json: bool = False,
    wait: str = "0",
    continue_: bool = False,
    resume: str | None = None,
    fork: bool = False,
    verify: str | None = None,
    env: Sequence[str] | None = None,
    **settings: object,
) -> int:
    """Do a run; its exit code.

    Args:
        prompt: The task; None: in `file`.
        file: Holds the task.
        workspace: Where the agent works.
        json: Whether events are printed as JSON.
        wait: How long it waits for another run to leave the workspace.
        continue_: Go on with the last session.
        resume: Go on with this one.
        fork: Leave that one as it is.
        verify: The check.
        env: `NAME=VALUE` for inside.
        settings: Further options by their names in `SETTINGS`.

    Raises:
        RingfenceError: The run could not be begun.
    """
    from ringfence.job.asked.session import going_on

    text = read_task(prompt, file)
    if verify is not None and not verify.strip():
        raise UsageError(
            f"--verify {verify!r} is empty; give the command that checks the work, or leave it out"
        )
    go_on = going_on(continue_=continue_, resume=resume, fork=fork)
    effective = load_settings(workspace, env=env, verify=verify, **settings)
    warn_about(effective)
    if effective.settings.run.runtime == "api":  # a client brings its own
        from ringfence.model import warm_up

        warm_up()
    import anyio

    return anyio.run(_run, text, workspace, effective, go_on, json, wait_of(wait))


async def _run(
    prompt: str, workspace: Path, effective: "Effective", go_on: "GoingOn | None", json: bool, wait_s: float
) -> int:
    from ringfence.job.asked.agent import agent_run

    async with agent_run(prompt, workspace, effective, go_on=go_on, tell=say) as (run, agent):
        return await _watched(replace(run, wait_s=wait_s), agent, json)


async def _watched(run: "RunRequest", agent: "AgentRequest", json: bool) -> int:
    from ringfence.cli.running import run_to_end
    from ringfence.job.agent import run_agent

    part = partial(run_agent, agent)
    if not json:
        return await _shown(run, part, agent.limits)
    from ringfence.cli.ndjson import print_event

    result = await run_to_end(run, part, view=print_event)
    if result.is_unwatched:
        from ringfence.cli.summary import say_end

        say_end(result)
    return result.exit_code


async def _shown(run: "RunRequest", part: "Part", limits: "Limits") -> int:
    import anyio

    from ringfence.cli.console import open_console
    from ringfence.cli.live import LiveView
    from ringfence.cli.running import run_to_end
    from ringfence.cli.summary import print_summary, say_end

    console = open_console()
    live = LiveView(console, limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.tick)
        result = await run_to_end(run, part, view=live.show)
        tasks.cancel_scope.cancel()
    if result.is_unwatched:
        say_end(result)
    else:
        print_summary(console, result)
    return result.exit_code
