"""What a loop will and will not see of the user's repository, reported before anything is made."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.loop.repository.commit import Tree, list_files, read_tree
from ringfence.loop.repository.refusal import RepositoryRefused, named
from ringfence.loop.repository.source import Opened, Source, find_source, opened
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.config import read_settings
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT, has_git
from ringfence.sandbox.workspace.snapshot.index import Index, read_index
from ringfence.sandbox.workspace.snapshot.objects import Blob

_LISTING_BYTES = 512 * 1024**2
_MAX_ATTRIBUTES = 200
_GITLINK = 0o160000
_COPIED = ("filemode", "symlinks", "ignorecase", "precomposeunicode", "trustctime", "checkstat")
_HARMLESS = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1", "minimal", "default"})
_STATUS_BYTES = 64 * 1024**2
_STATUS_S = 60.0


@frozen
class Look:
    """The user's repository, as it is."""

    source: Source
    base: str
    """The commit that the loop would start from."""
    branch: str | None
    """The branch that HEAD is on, in full; None if it is on none."""
    tree: Tree
    """The base's files, by their paths in the directory that the loop works in."""
    notes: tuple[str, ...]
    """What the user should know, each in one sentence."""


async def look(path: Path, *, base: str | None = None) -> Look:
    """See what the user's repository is. Nothing is written to it, and no program runs that it names.

    Args:
        path: The repository, or a directory in it, which the loop then works in.
        base: The commit to start from, as git names commits; default: HEAD.

    Raises:
        RepositoryRefused: A loop cannot start from it.
        UsageError: The files that it would work on hold more than 512 MiB.
    """
    source = find_source(path)
    async with opened(source) as seen:
        commit = await _base(source, seen, base)
        files = await _list_files(source, seen.git, commit)
        tree = await read_tree(seen.git, files, inside=source.inside)
        settings = await read_settings(source.actor, source.root, source.layout)
        notes = [
            *_about_history(source, seen, commit, base),
            *([] if source.is_bare else await _about_tree(source, seen, settings.excludes)),
            *await _about_files(seen.git, files),
        ]
    return Look(
        source=source,
        base=commit,
        branch=seen.branch if base is None else None,
        tree=tree,
        notes=tuple(notes),
    )


async def _base(source: Source, seen: Opened, base: str | None) -> str:
    """The commit to start from."""
    if base is not None:
        commit = await seen.commit(base)
        if commit is None:
            raise RepositoryRefused(
                f"{base!r} names no commit of {str(source.root)!r}; name a branch, a tag or a commit"
            )
        return commit
    if source.is_bare:
        raise RepositoryRefused(
            f"{str(source.root)!r} has no work tree, and so no commit that is checked out; say which to start from"
            " (--base)"
        )
    commit = seen.refs.head_commit()
    if commit is None:
        raise RepositoryRefused(
            f"{str(source.root)!r} has no commit yet, or HEAD leads to none; commit your files first"
        )
    return commit


async def _list_files(source: Source, git: Git, commit: str) -> list[Blob]:
    try:
        files = await list_files(git, commit)
    except InfrastructureFault as exc:
        raise RepositoryRefused(
            f"commit {commit[:12]!r} is not whole ({exc}): the repository is a partial clone, or damaged; `git checkout`"
            " fetches what is missing, `git fsck` shows it"
        ) from exc
    if source.inside and not any(blob.path.startswith(source.inside + b"/") for blob in files):
        raise RepositoryRefused(
            f"the directory {os.fsdecode(source.inside)!r} is not in commit {commit[:12]!r}; commit what is in it first"
        )
    return files


def _about_history(source: Source, seen: Opened, commit: str, base: str | None) -> list[str]:
    notes = []
    if source.inside:
        notes.append(
            f"the loop works in the directory {os.fsdecode(source.inside)!r} of {str(source.root)!r}"
        )
    if seen.branch is None and not source.is_bare:
        notes.append(
            f"HEAD is on no branch: the loop starts from commit {commit[:12]!r}, and there is no branch to merge into"
        )
    elif base is not None and seen.refs.head_commit() not in {commit, None} and not source.is_bare:
        notes.append(f"the loop starts from commit {commit[:12]!r}, which is not what is checked out")
    if seen.is_shallow:
        notes.append("the repository is shallow: agents see no more of its history than you have")
    if source.is_partial:
        notes.append("the repository is a partial clone: what you have not fetched of its history is missing")
    if source.config.get("core.sparsecheckout", "").lower() in {"true", "yes", "on", "1"}:
        notes.append("the checkout is sparse: the loop sees all files of the commit")
    if any(name.startswith("refs/replace/") for name in seen.refs.direct):
        notes.append(
            "replaced objects (`git replace`) are not followed: the loop sees the commits as they were made"
        )
    if os.path.lexists(source.layout.common / "info" / "grafts"):
        notes.append("grafts are not followed: the loop sees the commits as they were made")
    return notes


async def _about_files(git: Git, files: Sequence[Blob]) -> list[str]:
    notes = []
    submodules = [os.fsdecode(blob.path) for blob in files if blob.git_mode == _GITLINK]
    if submodules:
        notes.append(f"submodules stay empty in the loop: {named(submodules)}")
    attributes = [blob.id for blob in files if blob.path.rpartition(b"/")[2] == b".gitattributes"]
    if attributes:
        wanted = "\n".join((*attributes[:_MAX_ATTRIBUTES], ""))
        told = await git.run("cat-file", "--batch", stdin=wanted.encode(), output_limit_bytes=_LISTING_BYTES)
        lines = [line.split() for line in told.stdout.split(b"\n")]
        patterns = sorted({os.fsdecode(words[0]) for words in lines if b"filter=lfs" in words[1:]})
        if patterns:
            notes.append(f"files that Git LFS holds stay pointers in the loop: {named(patterns)}")
    return notes


def file_options(source: Source) -> tuple[str, ...]:
    """The user's settings for git that say what their file system can do."""
    values = {name: source.config.get(f"core.{name}", "").lower() for name in _COPIED}
    return tuple(f"core.{name}={value}" for name, value in values.items() if value in _HARMLESS)


async def _about_tree(source: Source, seen: Opened, excludes: bytes) -> list[str]:
    """Compare the user's work tree and a copy of the index with HEAD; nothing of the user's is written."""
    git = replace(seen.git, work_tree=source.root, options=("core.bare=false", *file_options(source)))
    try:
        await source.actor.call(lambda: _copy_index(git.directory, source.root, excludes))
        told = await git.run(
            # Git would run in each submodule, on its own configuration.
            *("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all"),
            "--untracked-files=normal",
            timeout_s=_STATUS_S,
            output_limit_bytes=_STATUS_BYTES,
        )
    except InfrastructureFault as exc:
        return [f"what of {str(source.root)!r} is not committed could not be found out: {exc}"]
    changed, untracked, nested = await source.actor.call(lambda: _sort_paths(told.stdout, source.root))
    notes = []
    if changed:
        notes.append(
            f"the loop does not see changes that are not committed: {named(changed)}; commit them first if it shall"
        )
    if untracked:
        notes.append(f"the loop does not see files that git does not track: {named(untracked)}")
    if nested:
        notes.append(f"the loop does not see repositories within the repository: {named(nested)}")
    return notes


def _copy_index(directory: Path, root: Path, excludes: bytes) -> None:
    """Copy the user's index into a git directory of ours, with the rules for files that are ignored."""
    index = read_index(root, room_bytes=INDEX_LIMIT) or Index()
    if index.is_left_out:
        raise InfrastructureFault(f"the index of {str(root)!r} is too large to be looked at")
    if index.data:
        (directory / "index").write_bytes(index.data)
    if index.shared_name:
        (directory / os.fsdecode(index.shared_name)).write_bytes(index.shared)
    (directory / "info" / "exclude").write_bytes(index.excludes + b"\n" + excludes)


def _sort_paths(listing: bytes, root: Path) -> tuple[list[str], list[str], list[str]]:
    """Of what `git status` lists: changed files, files and directories that are not tracked, and repositories."""
    changed, untracked, nested = list[str](), list[str](), list[str]()
    for line in listing.split(b"\0"):
        kind, path = line[:2], os.fsdecode(line[3:])
        if kind == b"??":
            is_nested = path.endswith("/") and has_git(root / path)
            (nested if is_nested else untracked).append(path)
        elif path:
            changed.append(path)
    return sorted(changed), sorted(untracked), sorted(nested)
