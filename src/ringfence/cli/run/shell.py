"""`ringfence shell`: a person's shell in a fence."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options
from ringfence.cli.option_settings import takes_settings
from ringfence.cli.saying import say
from ringfence.cli.settings import load_settings, wait_of, warn_about
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.job.outcome import RunResult


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

    Afterwards `ringfence diff` shows what changed, and `ringfence undo` takes it back. The run is recorded.
    """
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("ringfence shell needs a terminal; use `ringfence exec -- CMD` in scripts")
    effective = load_settings(workspace, **settings)
    warn_about(effective)
    import anyio

    from ringfence.cli.render.console import open_console
    from ringfence.cli.render.egress import Refused
    from ringfence.cli.render.summary import print_summary
    from ringfence.cli.run.execution import run_to_end
    from ringfence.job.resolution import command_request, with_credentials
    from ringfence.job.terminal import run_on_terminal

    request = command_request((program,), workspace, effective, purpose="shell", wait_s=wait_of(wait))
    refused = Refused()
    work = partial(run_on_terminal, (program,), sys.stdin.fileno(), sys.stdout.fileno())

    async def leased() -> "RunResult":
        async with with_credentials(request, effective, say) as complete:
            return await run_to_end(replace(complete, work=work), view=refused.show)

    result = anyio.run(leased)
    for line in refused.lines():
        say(line)
    print_summary(open_console(stderr=True), result)
    raise typer.Exit(result.exit_code if result.command_exit_code is None else result.command_exit_code)
