"""The end of a run: outcome, diffstat, what was used, where the record is."""

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.plural import counted
from ringfence.cli.render.console import print_line
from ringfence.cli.render.flagged import warnings
from ringfence.cli.render.next_command import commit_lines, how_to_apply
from ringfence.cli.saying import say
from ringfence.events import JobEnded, WorkExported

if TYPE_CHECKING:
    from rich.console import Console

    from ringfence.job.outcome import RunResult

_GOOD = {"succeeded": "bold green", "unverified": "bold yellow", "ended": "bold"}


def print_summary(console: "Console", result: "RunResult") -> None:
    """Print how a run ended; where the reader has left, how it ended goes to stderr."""
    lines = work_lines(result.work, result.run_dir) if result.work is not None else []
    lines.append((f"{result.state.value}: {result.reason}", _GOOD.get(result.state.value, "bold red")))
    if result.ended.turns:
        lines.append((_spent(result.ended), "dim"))
    lines.append((f"record: {result.run_dir}  (ringfence runs show {result.run_id[-8:]})", "dim"))
    hint = how_to_apply(result.work, result.run_dir)
    if hint is not None:
        lines.append((hint, "bold"))
    try:
        for line, how in lines:
            print_line(console, line, how)
    except OSError:
        say_end(result)


def say_end(result: "RunResult") -> None:
    """How a run ended, in a line on stderr: nobody reads stdout."""
    say(f"{result.state.value}: {result.reason}; record: {result.run_dir}")


def _spent(ended: JobEnded) -> str:
    cost = "cost unknown" if ended.cost_usd is None else f"${ended.cost_usd:.4f}"
    return (
        f"{counted(ended.turns, 'turn')}, {counted(ended.tool_calls, 'tool call')}, "
        f"{ended.usage.total:,} tokens, {cost}, {ended.duration_s:.1f} s"
    )


def work_lines(work: WorkExported, run_dir: Path) -> list[tuple[str, str]]:
    """What a run made, as lines and their styles; each command in them works where the files are."""
    short = run_dir.name[-8:]
    lines = [(f"note: {note}", "yellow") for note in work.notes]
    if not work.files_changed and not work.files_changed_by_commits and not work.refs:
        return [*lines, ("no files changed", "dim")]
    if work.files_changed:
        files = counted(work.files_changed, "file")
        lines.append((f"{files} changed, +{work.insertions} -{work.deletions}  (ringfence diff {short})", ""))
    if work.files_changed_by_commits:
        files = counted(work.files_changed_by_commits, "file")
        lines.append((f"{files} changed in commits only  (ringfence diff {short})", ""))
    lines += [(line, "") for line in commit_lines(work, run_dir)]
    lines += [(line, "bold red") for line in warnings(work.runs_on_your_machine, run_dir.name)]
    return lines
