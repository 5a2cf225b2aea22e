"""The end of a run: outcome, diffstat, where the record is."""

from typing import TYPE_CHECKING

from ringfence.cli.escape import visible
from ringfence.events import WorkExported

if TYPE_CHECKING:
    from rich.console import Console

    from ringfence.job.run import JobResult

_GOOD = {"succeeded": "bold green", "unverified": "bold yellow"}


def print_summary(console: "Console", result: "JobResult") -> None:
    """Print how a run ended."""
    from rich.text import Text

    from ringfence.journal import read

    lines: list[tuple[str, str]] = []
    work = next((r.event for r in read(result.run_dir) if isinstance(r.event, WorkExported)), None)
    if work is not None:
        lines += _work_lines(work, result.run_id)
    style = _GOOD.get(result.state.value, "bold red")
    lines.append((f"{result.state.value}: {result.reason}", style))
    lines.append((f"record: {result.run_dir}  (ringfence audit show {result.run_id[-8:]})", "dim"))
    for line, how in lines:
        console.print(Text(visible(line, one_line=True), style=how), soft_wrap=True)


def _work_lines(work: WorkExported, run_id: str) -> list[tuple[str, str]]:
    if not work.files_changed and not work.refs:
        return [("no files changed", "dim")]
    short = run_id[-8:]
    lines = [
        (
            f"{work.files_changed} files changed, +{work.insertions} -{work.deletions}  (ringfence diff {short})",
            "",
        )
    ]
    lines += [(f"commits: {ref}", "") for ref in work.refs]
    lines += [
        (f"RUNS ON YOUR MACHINE, look before you use it: {path}", "bold red")
        for path in work.runs_on_your_machine
    ]
    return lines
