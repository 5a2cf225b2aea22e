"""`ringfence replay`: a recorded run held again."""

from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import JsonOption
from ringfence.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ringfence.cli.recorded import RecordedRequest
    from ringfence.job.replay import ReplayResult


def replay(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run id, the beginning of one, or 'last': the newest of an agent on this workspace.",
        ),
    ] = "last",
    *,
    exact: Annotated[
        bool, typer.Option("--exact", help="Durations, times and temporary names count too.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the run as it goes, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Hold a run again. Recorded model, fresh sandbox, every tool executed. Exit 1 at the first divergence."""
    import anyio

    from ringfence.cli.chosen import chosen_run
    from ringfence.cli.escape import safe_json
    from ringfence.cli.recorded import recorded_request

    path = chosen_run(run, of_agents=True)
    _check_whole(path)
    asked = recorded_request(path)
    result = anyio.run(_replay, path, asked, exact, verbose and not json)
    if json:
        typer.echo(
            safe_json(
                {
                    "schema_version": 1,
                    "run": path.name,
                    "turns": result.turns,
                    "exchanges": result.exchanges,
                    "tolerated": list(result.tolerated),
                    "divergence": result.divergence,
                    "record_ended": result.ended,
                }
            )
        )
    else:
        _print(path, result, is_command=asked.agent is None)
    if result.divergence is not None:
        raise typer.Exit(ExitCode.FAILED)


def _check_whole(path: "Path") -> None:
    """Refuse a record that is not what was written: a replay would carry out what somebody put in."""
    from ringfence.errors import RecordError
    from ringfence.journal import verify

    found = verify(path)
    if found.status in ("broken", "truncated"):
        raise RecordError(
            f"the record of run {path.name!r} is {found.status} ({found.reason}), so it is not replayed; "
            f"see `ringfence audit verify {path.name[-8:]}`"
        )


def _print(path: "Path", result: "ReplayResult", *, is_command: bool) -> None:
    from ringfence.cli.escape import visible
    from ringfence.cli.plural import counted

    for line in _gathered(result.tolerated):
        typer.echo(f"tolerated: {visible(line, one_line=True)}", err=True)
    told = (
        "the same" if result.divergence is None else f"DIVERGED: {visible(result.divergence, one_line=True)}"
    )
    if result.ended is not None:
        told += f"; the record ends there ({visible(result.ended, one_line=True)})"
    parts = ["the command" if is_command else counted(result.turns, "turn")]
    parts += [f"{counted(result.exchanges, 'request')} to the model"] if result.exchanges else []
    typer.echo(f"replayed {' and '.join(parts)} of {path.name}: {told}")


def _gathered(differences: "Sequence[str]") -> list[str]:
    """Each difference once, with the turns it was met in: a request repeats what the ones before it said."""
    turns: dict[str, list[str]] = {}
    for difference in differences:
        turn, _, what = difference.partition(": ") if difference.startswith("turn ") else ("", "", difference)
        turns.setdefault(what, []).append(turn.removeprefix("turn "))
    return [_at_turns(seen, what) for what, seen in turns.items()]


def _at_turns(turns: "Sequence[str]", what: str) -> str:
    if not turns[0]:
        return what
    return f"turn {turns[0]}: {what}" if len(turns) == 1 else f"turns {', '.join(turns)}: {what}"


async def _replay(path: "Path", asked: "RecordedRequest", exact: bool, verbose: bool) -> "ReplayResult":
    from ringfence.cli.console import open_console
    from ringfence.cli.live import LiveView
    from ringfence.cli.saying import say
    from ringfence.job.replay import replay_run
    from ringfence.runtime.limits import Limits

    ways = [
        *(line for line in asked.spec.egress.lines() if line != "allow model"),
        *(f"forward {forward}" for forward in asked.spec.forward),
    ]
    if ways:
        say(f"the run had ways out ({'; '.join(ways)}); a replay has none, and what needed them differs")
    limits = asked.agent.limits if asked.agent is not None else Limits()
    view = LiveView(open_console(stderr=True), limits).show if verbose else None
    return await replay_run(
        path,
        asked.spec,
        asked.agent,
        access=asked.access,
        wall_clock_s=asked.wall_clock_s,
        is_exact=exact,
        view=view,
    )
