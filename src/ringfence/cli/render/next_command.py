"""Finds the command that a run's end names: what applies its changes or commits to the workspace, or undoes them."""

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import RecordError

if TYPE_CHECKING:
    from ringfence.events import WorkExported
    from ringfence.sandbox.workspace.record import WorkRecord


def how_to_apply(work: "WorkExported | None", run_dir: Path) -> str | None:
    """What brings the files that a run changed into the workspace; None where they are there already."""
    record = None if work is None or not work.files_changed else _record(run_dir)
    if record is None or record.mode != "clone":
        return None
    return f"the changes are in a private copy; apply them with `ringfence apply {run_dir.name[-8:]}`"


def how_to_undo(work: "WorkExported | None", run_dir: Path) -> str | None:
    """What takes a run's changes back out of the workspace; None where there are none in it."""
    record = None if work is None or not work.files_changed else _record(run_dir)
    if record is None or record.mode == "clone":
        return None
    return f"undo the changes with `ringfence undo {run_dir.name[-8:]}`"


def commit_lines(work: "WorkExported", run_dir: Path) -> list[str]:
    """The refs of a run's commits, each with the command that takes them over.

    Where files were changed that run on the user's machine, the command shows these instead.
    """
    look = f"ringfence diff {run_dir.name[-8:]} --flagged" if work.runs_on_your_machine else ""
    return [f"commits: {ref}  ({look or commit_command(ref, run_dir)})" for ref in work.refs]


def commit_command(ref: str, run_dir: Path) -> str:
    """What takes the commits of a run's ref into the user's branch.

    Where the files are in the workspace already, git would refuse to merge over them. So the index is set to the
    commit, which leaves the files alone, and the branch moves forward to it; this cannot be done with a branch that
    was not checked out, which is shown instead. The command works in the current directory and for this user.
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
        f"{git} merge-base --is-ancestor HEAD {name}",  # before anything is touched
        f"{git} restore --staged --source {name} :/",
        f"{git} merge --ff-only {name}",
    )
    return " && ".join(steps)


def _git(workspace: Path) -> str:
    """How git is called on a workspace: from another directory by its path, and by root as the workspace's owner."""
    words = ["git"]
    with suppress(OSError):  # one of the two directories is gone
        if not Path.cwd().is_relative_to(workspace):
            words += ["-C", str(workspace)]
        owner = workspace.stat()
        if os.geteuid() == 0 != owner.st_uid:  # git does not work for root on the repository of another user
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
    """The branch that is checked out, `HEAD` where a commit is; None where that cannot be read."""
    from ringfence.sandbox.workspace.git.layout import find_git, read_small

    layout = find_git(workspace)
    head = None if layout is None else read_small(layout.directory, b"HEAD")
    if head is None:
        return None
    text = os.fsdecode(head).strip()
    return text.removeprefix("ref: refs/heads/") if text.startswith("ref:") else "HEAD"
