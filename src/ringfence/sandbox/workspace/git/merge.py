"""Lists the files that a merge of an agent's commits would change; they are checked like changes in the workspace.

A commit need not match the workspace: its files may never have existed there. So git merges each tip into the user's
commit, in a git directory that ringfence made, without a work tree. The files that the merge would change, at the
paths to which the user has renamed them since, are part of the run's changes.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.layout import find_git
from ringfence.sandbox.workspace.git.packs import quarantine
from ringfence.sandbox.workspace.git.refs import Refs
from ringfence.sandbox.workspace.protect.flags import flag, matches_any
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.diff import ChangeKind, compare_trees, parse_diff

MAX_KEPT = 20_000
"""Limit for the files of commits in a record; those that run on the user's machine come first."""
_LISTING_BYTES = 64 * 1024**2
_PATCH_BYTES = 256 * 1024**2
_MAX_PATHS = 500
_EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


class CommittedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a commit changes."""

    ref: str
    """The ref of the commit; in a submodule, after the submodule's path and a colon."""
    path: str
    """Path relative to the workspace; bytes that are not UTF-8 are surrogate escapes."""
    kind: ChangeKind
    insertions: int = 0
    deletions: int = 0
    binary: bool = False
    mode: int = 0
    """Git's mode; 0 if the commit removes the file."""
    id: str = ""
    """The object id of its contents."""
    is_earlier: bool = False
    """Whether only an earlier commit changes it: a merge does not bring it in, but cherry-picking that commit would."""


async def committed_files(
    git: Git, head: str | None, tips: Mapping[str, str], *, place: str, protect: Collection[str]
) -> list[CommittedFile]:
    """List the files that merging each of the tips would change.

    Args:
        git: A git directory that ringfence made that has the user's objects and the new ones.
        head: The commit the user was at; None before the first.
        tips: The refs, and the commit of each.
        place: Path of the submodule in the workspace; empty for the workspace's own repository.
        protect: Patterns of paths that the agent may not write, relative to the workspace.

    Raises:
        GitBoundReached: They change more files than are examined.
    """
    found: list[CommittedFile] = []
    prefix = f"{place}/" if place else ""
    for name, tip in tips.items():
        ref = f"{place}: {name}" if place else name
        output = await compare_trees(git, *await _merge(git, head, tip), output_limit_bytes=_LISTING_BYTES)
        files = parse_diff(output).files
        found += [
            CommittedFile(
                ref=ref,
                path=prefix + change.path,
                kind=change.kind,
                insertions=change.insertions,
                deletions=change.deletions,
                binary=change.binary,
                mode=change.mode,
                id=change.id,
            )
            for change in files
        ]
        only_earlier = await _changed_by_any(git, head, tip) - {change.path for change in files}
        protected = matches_any([prefix + path for path in only_earlier], protect)
        earlier = {*(prefix + path for path in flag(only_earlier)), *protected}
        found += [
            CommittedFile(ref=ref, path=path, kind="modified", is_earlier=True) for path in sorted(earlier)
        ]
    return found


async def _merge(git: Git, head: str | None, tip: str) -> tuple[str, str]:
    """The trees before and after a merge; in case of conflicts, files of the second hold both versions."""
    if head is None:
        return _EMPTY_TREES[len(tip)], tip
    options = ("--write-tree", "--allow-unrelated-histories", "--no-messages")
    merged = await git.run("merge-tree", *options, head, tip, accept=(0, 1))
    return head, merged.stdout.split(maxsplit=1)[0].decode()


async def _changed_by_any(git: Git, head: str | None, tip: str) -> set[str]:
    """Paths that any of the new commits changes; for a merge commit, paths that differ from all of its parents."""
    known = [f"^{head}"] if head else []
    listed = await git.run("rev-list", tip, *known, output_limit_bytes=_LISTING_BYTES)
    options = ("--stdin", "-r", "-c", "-z", "--root", "--no-commit-id", "--name-only", "--no-renames")
    answer = await git.run("diff-tree", *options, stdin=listed.stdout, output_limit_bytes=_LISTING_BYTES)
    return set(os.fsdecode(answer.stdout).split("\0")) - {""}


def select_differing(
    files: Sequence[CommittedFile], tree: Mapping[bytes, tuple[int, str]], protect: Collection[str]
) -> tuple[list[CommittedFile], int]:
    """Return the committed files that differ from the workspace, auto-executed ones first, and the number omitted.

    Args:
        files: From `committed_files`.
        tree: Mode and object id of each file in the workspace after the run.
        protect: Patterns of paths that the agent may not write.
    """
    absent = (0, "")
    other = [
        one
        for one in files
        if one.is_earlier
        or ((one.mode, one.id) if one.mode else absent) != tree.get(os.fsencode(one.path), absent)
    ]
    paths = {one.path for one in other}
    suspects = {*flag(paths), *matches_any(paths, protect)}
    other.sort(key=lambda one: one.path not in suspects)
    return other[:MAX_KEPT], max(0, len(other) - MAX_KEPT)


async def commit_patch(
    workspace: str, head: str | None, tip: str | None, paths: Sequence[str], actor: Actor
) -> bytes | None:
    """Return the patch of files that a merge of a commit would change; None if it cannot be built.

    The commits may be gone, in a submodule, or in a bundle beside the record; or there may be too many files.
    """
    layout = await actor.call(lambda: find_git(Path(workspace)))
    if tip is None or layout is None or not 0 < len(paths) <= _MAX_PATHS:
        return None
    options = ("-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color")
    more = ("--no-ext-diff", "--no-textconv")
    refs = Refs(b"ref: refs/heads/none\n", {}, {}, object_format="sha256" if len(tip) == 64 else "sha1")
    try:
        async with quarantine(layout, refs, actor) as git:
            literal_git = replace(git, environment={**git.environment, "GIT_LITERAL_PATHSPECS": "1"})
            trees = await _merge(git, head, tip)
            made = await literal_git.run(
                "diff-tree", *options, *more, *trees, "--", *paths, output_limit_bytes=_PATCH_BYTES
            )
    except InfrastructureFault:
        return None  # the caller lists the files instead
    return made.stdout
