"""`ringfence mcp`: serves sandboxes to an MCP client."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options
from ringfence.cli.options import takes_settings
from ringfence.cli.settings import check_directory, duration_of, load_settings, size_of, warn_about
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from socket import socket

    from ringfence.integrations.mcp.registry import ServerOptions


@takes_settings(
    "sandbox", "image", "engine", "mode", "memory", "cpus", "pids", "disk", "timeout", "soft_limits", "setup",
    "forward", "allow", "env", "auth", "label",
)  # fmt: skip
def mcp(
    *,
    workspace: options.WorkspaceOption = Path(),
    allow_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow-dir",
            metavar="DIR",
            help="Let clients name workspaces in this directory; repeatable. Default: the workspace.",
        ),
    ] = None,
    max_sandboxes: Annotated[
        int, typer.Option("--max-sandboxes", min=1, max=100, metavar="N", help="Open sandboxes per session.")
    ] = 8,
    max_processes: Annotated[
        int, typer.Option("--max-processes", min=1, max=100, metavar="N", help="Processes per sandbox.")
    ] = 16,
    max_record: Annotated[
        str,
        typer.Option("--max-record", metavar="SIZE", help="End a sandbox whose record grows beyond this."),
    ] = "256m",
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="Close a sandbox after this time without a call.")
    ] = "30m",
    allow_apply: Annotated[
        bool,
        typer.Option("--allow-apply", help="Let clients apply changes to the workspace without a person."),
    ] = False,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="[HOST:]PORT", help="Serve HTTP on the loopback instead of stdio."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Tokens for --http, one per line; mode 600."),
    ] = None,
    **settings: Any,
) -> None:
    """Serve sandboxes to an MCP client on stdin and stdout.

    Each sandbox is a recorded run on a private copy of the workspace; its changes wait for `ringfence apply`.
    """
    import anyio

    from ringfence.integrations.mcp.registry import ServerOptions

    warn_about(load_settings(workspace, **settings))
    for directory in allow_dir or ():
        check_directory(directory)
    place = Path(os.path.realpath(workspace))
    served = ServerOptions(
        workspace=place,
        allowed=[Path(os.path.realpath(each)) for each in allow_dir or [place]],
        load=partial(load_settings, **settings),
        max_sandboxes=max_sandboxes,
        max_processes=max_processes,
        max_record_bytes=size_of("--max-record", max_record),
        idle_s=duration_of("--idle", idle),
        allows_apply=allow_apply,
    )
    if http is None:
        if token_file is not None:
            raise UsageError("--token-file is for --http; stdio has no tokens")
        anyio.run(_serve, served, None)
        return
    from ringfence.integrations.mcp.http import TOKEN_VARIABLE, listen, read_tokens

    with listen(http) as listener:
        tokens = read_tokens(token_file, os.environ)
        os.environ.pop(TOKEN_VARIABLE, None)  # no process that this one starts needs it
        anyio.run(_serve, served, (listener, tokens))


async def _serve(served: "ServerOptions", http: "tuple[socket, list[str]] | None") -> None:
    """Serve until the client or a signal ends the session; then the sandboxes end and their records are sealed."""
    import anyio

    from ringfence.cli.run.execution import handle_interrupts
    from ringfence.integrations.mcp.registry import SandboxRegistry
    from ringfence.integrations.mcp.server import serve_stdio

    async with anyio.create_task_group() as tasks:
        registry = SandboxRegistry(served, tasks)
        serving = anyio.CancelScope()

        def interrupt() -> None:
            if serving.cancel_called:
                registry.stop_at_once()
            serving.cancel()

        await tasks.start(handle_interrupts, interrupt)
        with serving:
            if http is None:
                await serve_stdio(registry)
            else:
                from ringfence.integrations.mcp.http import serve_http

                await serve_http(registry, *http)
        with anyio.CancelScope(shield=True):
            await registry.close_all("its session ended")
        tasks.cancel_scope.cancel()
