"""`ringfence exec` and `ringfence shell`: one command, or a shell, in a sandbox."""

import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options
from ringfence.cli.options import PASS_ARGUMENTS, takes_settings, with_options
from ringfence.cli.output import notify
from ringfence.cli.render.summary import commit_lines, how_to_apply, warnings
from ringfence.cli.settings import load_settings, wait_of, warn_about
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.events import Event
    from ringfence.job.outcome import RunResult
    from ringfence.job.request import RunRequest


@with_options(context_settings=PASS_ARGUMENTS)
@takes_settings(
    "sandbox", "image", "engine", "mode", "memory", "cpus", "pids", "disk", "timeout", "max_tokens",
    "max_cost_usd", "soft_limits", "setup", "forward", "allow", "env", "auth", "label",
)  # fmt: skip
def execute(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Program and arguments.")],
    *,
    workspace: options.WorkspaceOption = Path(),
    wait: options.WaitOption = "0",
    **settings: Any,
) -> None:
    """Run one command in a sandbox.

    Its standard streams and exit code are passed through. The run is recorded.
    """
    import anyio

    from ringfence.job.resolution import command_request

    # Typer passes unknown options on, because the command may have options of its own.
    if command[0].startswith("-"):
        raise UsageError(f"no such option: {command[0]}; see `ringfence exec --help`")
    effective = load_settings(workspace, **settings)
    warn_about(effective)
    request = command_request(tuple(command), workspace, effective, purpose="exec", wait_s=wait_of(wait))
    raise typer.Exit(anyio.run(_execute, request, tuple(command), effective))


async def _execute(request: "RunRequest", command: tuple[str, ...], effective: "Effective") -> int:
    from ringfence.job.credentials import with_credentials

    async with with_credentials(request, effective, notify) as complete:
        return await _pass_through(complete, command)


async def _pass_through(request: "RunRequest", command: tuple[str, ...]) -> int:
    from ringfence.cli.render.egress import HINT, ConnectionFailures, RefusalSummary
    from ringfence.cli.run.execution import run_to_end
    from ringfence.job.command import Stdio, open_null, run_command

    refused, unconnected = RefusalSummary(), ConnectionFailures()

    async def view(event: "Event") -> None:
        unconnected.note(event)
        await refused.show(event)

    with ExitStack() as files:
        stdio = Stdio(
            sys.stdin.buffer if sys.stdin else None,
            sys.stdout.buffer if sys.stdout else files.enter_context(open_null()),
            sys.stderr.buffer if sys.stderr else files.enter_context(open_null()),
        )
        work = partial(run_command, command, stdio)
        result = await run_to_end(request.running(work), view=view)
    messages = refused.lines()
    if unconnected.unreached:
        messages += [
            f"forward {name!r} was not reached: {reason}" for name, reason in unconnected.unreached.items()
        ]
    elif unconnected.is_likely and not request.spec.egress.wants_proxy:
        messages.append(HINT)
    if result.work is not None:
        messages += [f"note: {note}" for note in result.work.notes]
        messages += commit_lines(result.work, result.run_dir)
        messages += warnings(result.work.runs_on_your_machine, result.run_id)
    hint = how_to_apply(result.work, result.run_dir)
    messages += [] if hint is None else [hint]
    if result.command_exit_code is None or result.state.value not in ("succeeded", "failed"):
        messages.append(f"{result.state.value}: {result.reason}")
    for line in messages:
        notify(line)
    return result.exit_code if result.command_exit_code is None else result.command_exit_code


@takes_settings(
    "sandbox", "image", "engine", "mode", "memory", "setup", "forward", "allow", "env", "auth",
)  # fmt: skip
def shell(
    *,
    workspace: options.WorkspaceOption = Path(),
    wait: options.WaitOption = "0",
    program: Annotated[str, typer.Option("--program", metavar="CMD", help="Shell to start.")] = "bash",
    **settings: Any,
) -> None:
    """Open a shell in a sandbox on this terminal.

    The run is recorded. Afterwards `ringfence diff` shows the changes. `ringfence undo` reverts them; from a private
    copy (mode clone; the default on root's own workspace) `ringfence apply` must bring them in first.
    """
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("ringfence shell needs a terminal; use `ringfence exec -- CMD` in scripts")
    effective = load_settings(workspace, **settings)
    warn_about(effective)
    import anyio

    from ringfence.cli.render.console import open_console
    from ringfence.cli.render.egress import RefusalSummary
    from ringfence.cli.render.summary import print_summary
    from ringfence.cli.run.execution import run_to_end
    from ringfence.job.credentials import with_credentials
    from ringfence.job.resolution import command_request
    from ringfence.job.terminal import run_on_terminal

    request = command_request((program,), workspace, effective, purpose="shell", wait_s=wait_of(wait))
    refused = RefusalSummary()
    work = partial(run_on_terminal, (program,), sys.stdin.fileno(), sys.stdout.fileno())

    async def run_with_credentials() -> "RunResult":
        async with with_credentials(request, effective, notify) as complete:
            return await run_to_end(complete.running(work), view=refused.show)

    result = anyio.run(run_with_credentials)
    for line in refused.lines():
        notify(line)
    print_summary(open_console(stderr=True), result)
    raise typer.Exit(result.exit_code if result.command_exit_code is None else result.command_exit_code)
