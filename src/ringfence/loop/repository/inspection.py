"""Examines the user's repository before a loop is created, and reports which parts of it the loop will not see."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.loop.repository.commit import Tree, list_files, read_tree
from ringfence.loop.repository.refusal import RepositoryRefused, list_paths
from ringfence.loop.repository.source import Source, SourceView, find_source, open_source
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.config import read_settings
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT, has_git
from ringfence.sandbox.workspace.snapshot.index import Index, read_index
from ringfence.sandbox.workspace.snapshot.objects import Blob

_LISTING_BYTES = 512 * 1024**2
_MAX_ATTRIBUTES = 200
_GITLINK = 0o160000
_FILE_SETTINGS = ("filemode", "symlinks", "ignorecase", "precomposeunicode", "trustctime", "checkstat")
_HARMLESS_VALUES = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1", "minimal", "default"})
_STATUS_BYTES = 64 * 1024**2
_STATUS_S = 60.0


@frozen
class Inspection:
    """The state of the user's repository."""

    source: Source
    base: str
    """The commit that the loop would start from."""
    branch: str | None
    """Full ref name of HEAD's branch; None if HEAD is detached, or a base was named."""
    files: Sequence[Blob]
    """Every file of the base."""
    tree: Tree
    """The contents of the base's files, with paths relative to the directory that the loop works in."""
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""


async def inspect_repository(path: Path, *, base: str | None = None) -> Inspection:
    """Examine the user's repository. Nothing is written to it, and no program that it names is run.

    Args:
        path: The repository, or a directory in it, in which the loop then works.
        base: A revision to start from; None: HEAD.

    Raises:
        RepositoryRefused: It is no repository, or a loop cannot start from it.
        InfrastructureFault: Git failed.
        UsageError: The files that the loop would work on contain more than 512 MiB.
    """
    source = find_source(path)
    async with open_source(source) as view:
        commit = await _base(source, view, base)
        files = await _list_files(source, view.git, commit)
        tree = await read_tree(view.git, files, inside=source.inside)
        settings = await read_settings(source.actor, source.root, source.layout)
        notes = [
            *_about_history(source, view, commit, base),
            *([] if source.is_bare else await _about_tree(source, view, settings.excludes)),
            *await _about_files(view.git, files),
        ]
    return Inspection(
        source=source,
        base=commit,
        branch=view.branch if base is None else None,
        files=files,
        tree=tree,
        notes=tuple(notes),
    )


async def _base(source: Source, view: SourceView, base: str | None) -> str:
    """Return the commit to start from."""
    if base is not None:
        commit = await view.commit(base)
        if commit is None:
            raise RepositoryRefused(
                f"{base!r} names no commit of {str(source.root)!r}; name a branch, a tag or a commit"
            )
        return commit
    if source.is_bare:
        raise RepositoryRefused(
            f"{str(source.root)!r} is a bare repository; pass the start commit with --base"
        )
    commit = view.refs.head_commit()
    if commit is None:
        raise RepositoryRefused(
            f"{str(source.root)!r} has no commit yet, or HEAD points to none; commit your files first"
        )
    return commit


async def _list_files(source: Source, git: Git, commit: str) -> list[Blob]:
    try:
        files = await list_files(git, commit)
    except InfrastructureFault as exc:
        raise RepositoryRefused(
            f"commit {commit[:12]!r} is not complete ({exc}): the repository is a partial clone, or damaged; `git"
            " checkout` fetches missing objects, `git fsck` lists them"
        ) from exc
    if source.inside and not any(blob.path.startswith(source.inside + b"/") for blob in files):
        raise RepositoryRefused(
            f"the directory {os.fsdecode(source.inside)!r} is not in commit {commit[:12]!r}; commit its files first"
        )
    return files


def _about_history(source: Source, view: SourceView, commit: str, base: str | None) -> list[str]:
    notes = []
    if source.inside:
        notes.append(
            f"the loop works in the directory {os.fsdecode(source.inside)!r} of {str(source.root)!r}"
        )
    if view.branch is None and not source.is_bare:
        notes.append(
            f"HEAD is on no branch: the loop starts from commit {commit[:12]!r}, and there is no branch to merge into"
        )
    elif base is not None and view.refs.head_commit() not in {commit, None} and not source.is_bare:
        notes.append(f"the loop starts from commit {commit[:12]!r}, which is not what is checked out")
    if view.is_shallow:
        notes.append("the repository is shallow: agents see no more of its history than you have")
    if source.is_partial:
        notes.append("the repository is a partial clone: objects that you have not fetched are missing")
    if source.is_sparse:
        notes.append("the checkout is sparse: the loop sees all files of the commit")
    if any(name.startswith("refs/replace/") for name in view.refs.direct):
        notes.append("replaced objects (`git replace`) are not followed: the loop sees the original commits")
    if os.path.lexists(source.layout.common / "info" / "grafts"):
        notes.append("grafts are not followed: the loop sees the original commits")
    return notes


async def _about_files(git: Git, files: Sequence[Blob]) -> list[str]:
    notes = []
    submodules = [os.fsdecode(blob.path) for blob in files if blob.git_mode == _GITLINK]
    if submodules:
        notes.append(f"submodules stay empty in the loop: {list_paths(submodules)}")
    attributes = [blob.id for blob in files if blob.path.rpartition(b"/")[2] == b".gitattributes"]
    if attributes:
        names = "\n".join((*attributes[:_MAX_ATTRIBUTES], ""))
        blobs = await git.run("cat-file", "--batch", stdin=names.encode(), output_limit_bytes=_LISTING_BYTES)
        lines = [line.split() for line in blobs.stdout.split(b"\n")]
        patterns = sorted(
            {
                os.fsdecode(words[0])
                for words in lines
                if b"filter=lfs" in words[1:] and not words[0].startswith((b"#", b"[attr]"))
            }
        )
        if patterns:
            notes.append(f"files that Git LFS holds stay pointers in the loop: {list_paths(patterns)}")
    if len(attributes) > _MAX_ATTRIBUTES:
        notes.append(
            f"only {_MAX_ATTRIBUTES} of {len(attributes)} .gitattributes files were searched for Git LFS patterns"
        )
    return notes


def file_options(source: Source) -> tuple[str, ...]:
    """Return the user's git settings that describe the abilities of the file system."""
    values = {name: source.config.get(f"core.{name}", "").lower() for name in _FILE_SETTINGS}
    return tuple(f"core.{name}={value}" for name, value in values.items() if value in _HARMLESS_VALUES)


async def _about_tree(source: Source, view: SourceView, excludes: bytes) -> list[str]:
    """Compare the user's work tree and a copy of the index with HEAD. Nothing is written to the user's repository."""
    git = replace(view.git, work_tree=source.root, options=("core.bare=false", *file_options(source)))
    try:
        await source.actor.call(lambda: _copy_index(git.directory, source.root, excludes))
        status = await git.run(
            # Otherwise git runs in each submodule, with the submodule's configuration.
            *("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all"),
            "--untracked-files=normal",
            timeout_s=_STATUS_S,
            output_limit_bytes=_STATUS_BYTES,
        )
    except InfrastructureFault as exc:
        return [f"the uncommitted changes of {str(source.root)!r} could not be listed: {exc}"]
    changed, untracked, nested = await source.actor.call(lambda: _sort_paths(status.stdout, source.root))
    notes = []
    if changed:
        notes.append(
            f"uncommitted changes are not visible to the loop: {list_paths(changed)}; commit them if they should be"
        )
    if untracked:
        notes.append(f"untracked files are not visible to the loop: {list_paths(untracked)}")
    if nested:
        notes.append(f"nested repositories are not visible to the loop: {list_paths(nested)}")
    return notes


def _copy_index(directory: Path, root: Path, excludes: bytes) -> None:
    """Copy the user's index and the rules for ignored files into a temporary git directory."""
    index = read_index(root, room_bytes=INDEX_LIMIT) or Index()
    if index.is_left_out:
        raise InfrastructureFault(f"the index of {str(root)!r} is too large to be read")
    if index.data:
        (directory / "index").write_bytes(index.data)
    if index.shared_name:
        (directory / os.fsdecode(index.shared_name)).write_bytes(index.shared)
    (directory / "info" / "exclude").write_bytes(index.excludes + b"\n" + excludes)


def _sort_paths(listing: bytes, root: Path) -> tuple[list[str], list[str], list[str]]:
    """Sort the paths that `git status` lists into changed files, untracked paths, and nested repositories."""
    changed, untracked, nested = list[str](), list[str](), list[str]()
    for line in listing.split(b"\0"):
        kind, path = line[:2], os.fsdecode(line[3:])
        if kind == b"??":
            is_nested = path.endswith("/") and has_git(root / path)
            (nested if is_nested else untracked).append(path)
        elif path:
            changed.append(path)
    return sorted(changed), sorted(untracked), sorted(nested)
