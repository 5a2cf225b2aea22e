"""`ringfence replay`: a recorded run held again."""

from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from ringfence.job.replay import ReplayResult


def replay(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run id, the beginning of one, or 'last'.")
    ] = "last",
    *,
    exact: Annotated[
        bool, typer.Option("--exact", help="Durations, times and temporary names count too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Hold a run again: recorded model, fresh sandbox, every tool executed. Exit 1 at the first divergence."""
    import anyio

    from ringfence.cli.escape import safe_json, visible
    from ringfence.journal import resolve

    path = resolve(run)
    result = anyio.run(_replay, path, exact, json)
    if json:
        typer.echo(
            safe_json(
                {
                    "schema_version": 1,
                    "run": path.name,
                    "turns": result.turns,
                    "tolerated": list(result.tolerated),
                    "divergence": result.divergence,
                }
            )
        )
    else:
        for line in result.tolerated:
            typer.echo(f"tolerated: {visible(line, one_line=True)}", err=True)
        told = (
            "the same"
            if result.divergence is None
            else f"DIVERGED: {visible(result.divergence, one_line=True)}"
        )
        typer.echo(f"replayed {result.turns} turns of {path.name}: {told}")
    if result.divergence is not None:
        raise typer.Exit(ExitCode.FAILED)


async def _replay(path: "Path", exact: bool, json: bool) -> "ReplayResult":
    from ringfence.cli.console import open_console
    from ringfence.cli.live import LiveView
    from ringfence.cli.recorded import recorded_request
    from ringfence.job.replay import replay_run

    spec, agent = recorded_request(path)
    view = None if json else LiveView(open_console(stderr=True), agent.limits).show
    return await replay_run(path, spec, agent, is_exact=exact, view=view)
