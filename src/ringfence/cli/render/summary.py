"""Prints the end of a run: outcome, changes, usage, flagged files, and the next command.

An agent can create thousands of files that run on the user's machine in order to hide one. So the list alternates
between the reasons why files are flagged: none gets a second line before each has one.
"""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.output import counted, notify
from ringfence.errors import ExitCode, RecordError

if TYPE_CHECKING:
    from rich.console import Console

    from ringfence.events import JobEnded, WorkExported
    from ringfence.job.outcome import RunResult
    from ringfence.sandbox.workspace.record import WorkRecord

_HOW_TO_VERIFY = (
    f"exit code {ExitCode.UNVERIFIED}: --verify CMD checks the work in a new sandbox, --no-verify accepts it unchecked "
    "(exit code 0), --require-verified refuses a run without a check"
)
_GOOD = {"succeeded": "bold green", "unverified": "bold yellow", "ended": "bold"}


def print_summary(console: "Console", result: "RunResult") -> None:
    """Print how a run ended; on stderr if the reader of stdout has left."""
    from ringfence.cli.render.console import print_line

    lines = work_lines(result.work, result.run_dir) if result.work is not None else []
    lines.append((f"{result.state.value}: {result.reason}", _GOOD.get(result.state.value, "bold red")))
    if result.exit_code == ExitCode.UNVERIFIED:
        lines.append((_HOW_TO_VERIFY, ""))
    if result.ended.turns:
        lines.append((f"{usage_text(result.ended)}, {result.ended.duration_s:.1f} s", "dim"))
    lines.append((f"record: {result.run_dir}  (ringfence runs show {result.run_id[-8:]})", "dim"))
    hint = how_to_apply(result.work, result.run_dir)
    if hint is not None:
        lines.append((hint, "bold"))
    try:
        for line, how in lines:
            print_line(console, line, how)
    except OSError:
        report_end(result)


def report_end(result: "RunResult") -> None:
    """Print how a run ended in one line on stderr, as stdout has no reader."""
    notify(f"{result.state.value}: {result.reason}; record: {result.run_dir}")


def usage_text(ended: "JobEnded") -> str:
    """The turns, tool calls, tokens and cost of a run."""
    cost = "cost unknown" if ended.cost_usd is None else f"${ended.cost_usd:.4f}"
    total, output = ended.usage.total, ended.usage.output_tokens
    tokens = f"{total:,} tokens ({total - output:,} input, {output:,} output)"
    return f"{counted(ended.turns, 'turn')}, {counted(ended.tool_calls, 'tool call')}, {tokens}, {cost}"


def work_lines(work: "WorkExported", run_dir: Path) -> list[tuple[str, str]]:
    """The results of a run as lines and their styles; each command in them works in the directory of the files."""
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


def how_to_apply(work: "WorkExported | None", run_dir: Path) -> str | None:
    """The command that applies a run's changes to the workspace; None if they are already there."""
    record = None if work is None or not work.files_changed else _record(run_dir)
    if record is None or record.mode != "clone":
        return None
    return f"the changes are in a private copy; apply them with `ringfence apply {run_dir.name[-8:]}`"


def how_to_undo(work: "WorkExported | None", run_dir: Path) -> str | None:
    """The command that undoes a run's changes in the workspace; None if it contains none."""
    record = None if work is None or not work.files_changed else _record(run_dir)
    if record is None or record.mode == "clone":
        return None
    return f"undo the changes with `ringfence undo {run_dir.name[-8:]}`"


def commit_lines(work: "WorkExported", run_dir: Path) -> list[str]:
    """The refs of a run's commits, each with the command that merges them.

    If files were changed that run on the user's machine, the command shows these instead.
    """
    look = f"ringfence diff {run_dir.name[-8:]} --flagged" if work.runs_on_your_machine else ""
    return [f"commits: {ref}  ({look or commit_command(ref, run_dir)})" for ref in work.refs]


def commit_command(ref: str, run_dir: Path) -> str:
    """The command that adds the commits of a run's ref to the user's branch.

    If the files are already in the workspace, git would refuse to merge over them. So the index is set to the
    commit, which leaves the files alone, and the branch moves forward to it; this is impossible for a branch that is
    not checked out, which is shown instead. The command works in the current directory and for this user.
    """
    record, name = _record(run_dir), shlex.quote(ref)
    if record is None:
        return f"git merge {name}"
    git = _git(Path(record.workspace))
    if record.mode == "clone":
        return f"{git} merge {name}"
    if ref.rpartition(f"/{record.run}/")[2] != _current_branch(Path(record.workspace)):
        return f"{git} log -p {name}"
    if record.base_commit is None:  # the branch has no commit yet
        return f"! {git} rev-parse -q --verify HEAD && {git} reset -q {name}"
    steps = (
        f"{git} merge-base --is-ancestor HEAD {name}",  # before anything is changed
        f"{git} restore --staged --source {name} :/",
        f"{git} merge --ff-only {name}",
    )
    return " && ".join(steps)


def _git(workspace: Path) -> str:
    """The git command for a workspace: from another directory with its path, and for root as the workspace's owner."""
    words = ["git"]
    with suppress(OSError):  # one of the two directories is gone
        if not Path.cwd().is_relative_to(workspace):
            words += ["-C", str(workspace)]
        owner = workspace.stat()
        if os.geteuid() == 0 != owner.st_uid:  # git refuses to work for root on another user's repository
            words = [
                "setpriv",
                f"--reuid={owner.st_uid}",
                f"--regid={owner.st_gid}",
                "--clear-groups",
                *words,
            ]
    return shlex.join(words)


def _record(run_dir: Path) -> "WorkRecord | None":
    from ringfence.sandbox.workspace.record import load_record

    try:
        return load_record(run_dir)
    except RecordError:
        return None


def _current_branch(workspace: Path) -> str | None:
    """The branch that is checked out, or `HEAD` if a commit is; None if that cannot be read."""
    from ringfence.sandbox.workspace.git.layout import find_git, read_small

    layout = find_git(workspace)
    head = None if layout is None else read_small(layout.directory, b"HEAD")
    if head is None:
        return None
    text = os.fsdecode(head).strip()
    return text.removeprefix("ref: refs/heads/") if text.startswith("ref:") else "HEAD"


WARNING = "RUNS ON YOUR MACHINE, or is protected; look before you use it"
_LINES = 20


def warnings(paths: Sequence[str], run_id: str) -> list[str]:
    """A line for each flagged path; if there are many, one for each directory, up to a limit."""
    if len(paths) <= _LINES:
        return [f"{WARNING}: {path}" for path in paths]
    groups = _in_turn(_by_directory(paths))
    shown = [f"{WARNING}: {name}" for name, _ in groups[:_LINES]]
    hidden = sum(count for _, count in groups[_LINES:])
    if hidden:
        shown.append(f"{WARNING}: {counted(hidden, 'more file')} in {len(groups) - _LINES:,} more places")
    return [*shown, f"all {len(paths):,}, each with its reason: ringfence diff {run_id[-8:]} --flagged"]


def listing(paths: Iterable[str], record: "WorkRecord") -> Iterator[str]:
    """Every flagged path with its reason."""
    from ringfence.sandbox.workspace.protect.flags import matches_any, reason

    paths = list(paths)
    protected = frozenset(matches_any(paths, record.protect))
    refs: dict[str, str] = {file.path: file.ref for file in record.committed}
    for path in paths:
        where = f" (in the commits of {refs[path]})" if path in refs else ""
        yield f"{path}: {'sandbox.protect names it' if path in protected else reason(path)}{where}"


def _by_directory(paths: Iterable[str]) -> list[tuple[str, str, int]]:
    """Reason, text and number of files, for each reason and each directory that has such files."""
    from ringfence.sandbox.workspace.protect.flags import reason

    first: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for path in paths:
        key = (reason(path), path.rpartition("/")[0])
        first.setdefault(key, path)
        counts[key] += 1
    return [
        (key[0], path if counts[key] == 1 else f"{key[1] or '.'}/ ({counts[key]:,} files)", counts[key])
        for key, path in first.items()
    ]


def _in_turn(groups: Iterable[tuple[str, str, int]]) -> list[tuple[str, int]]:
    """The first of each reason, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    ranked = []
    for why, shown, count in groups:
        ranked.append((seen[why], shown, count))
        seen[why] += 1
    return [(shown, count) for _, shown, count in sorted(ranked, key=lambda each: each[0])]
