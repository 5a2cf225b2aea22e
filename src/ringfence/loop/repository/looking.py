"""What a loop will and will not see of the user's repository, told before anything is made."""

import os
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.loop.repository.dirty import Dirty, look_at_tree
from ringfence.loop.repository.refusal import RepositoryRefused, named
from ringfence.loop.repository.source import Opened, Source, find_source, opened
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.config import read_settings

_LISTING_BYTES = 512 * 1024**2
_MAX_ATTRIBUTES = 200


@frozen
class Look:
    """The user's repository, as it is."""

    source: Source
    base: str
    """The commit that the loop would start from."""
    branch: str | None
    """The branch that HEAD is on, in full; None if it is on none."""
    name: str
    """The user's name for git; empty where there is none."""
    email: str
    notes: tuple[str, ...]
    """What the user should know, each in one sentence."""


async def look(path: Path, *, base: str | None = None) -> Look:
    """See what the user's repository is. Nothing is written to it, and no program runs that it names.

    Args:
        path: The repository, or a directory in it, which the loop then works in.
        base: The commit to start from, as git names commits; default: HEAD.

    Raises:
        RepositoryRefused: A loop cannot start from it.
    """
    source = find_source(path)
    async with opened(source) as seen:
        commit = await _base(source, seen, base)
        files = await _Files.of(seen.git, commit)
        await _check_inside(source, seen, commit, base)
        settings = await read_settings(source.actor, source.root, source.layout)
        dirty, complaint = Dirty(), ""
        if not source.is_bare:
            try:
                dirty = await look_at_tree(source, seen, excludes=settings.excludes)
            except InfrastructureFault as exc:
                complaint = f"what of {str(source.root)!r} is not committed could not be found out: {exc}"
        notes = [
            *_about_history(source, seen, commit, base),
            *_about_tree(dirty),
            *((complaint,) if complaint else ()),
            *await _about_files(seen.git, files),
        ]
    identity = settings.identity
    is_known = identity.email != "agent@localhost" and identity.name != "agent"
    return Look(
        source=source,
        base=commit,
        branch=seen.branch if base is None else None,
        name=identity.name if is_known else "",
        email=identity.email if is_known else "",
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
    commit = await seen.commit("HEAD")
    if commit is None:
        raise RepositoryRefused(
            f"{str(source.root)!r} has no commit yet, or HEAD leads to none; commit your files first"
        )
    return commit


async def _check_inside(source: Source, seen: Opened, commit: str, base: str | None) -> None:
    if not source.inside:
        return
    told = await seen.git.run("ls-tree", "-z", "-d", commit, "--", os.fsdecode(source.inside))
    if not told.stdout:
        raise RepositoryRefused(
            f"the directory {os.fsdecode(source.inside)!r} is not in commit {base or 'HEAD'!r}; commit what is in it"
            " first"
        )


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


def _about_tree(dirty: Dirty) -> list[str]:
    notes = []
    if dirty.changed:
        notes.append(
            f"the loop does not see changes that are not committed: {named(dirty.changed)}; commit them first if it"
            " shall"
        )
    if dirty.untracked:
        notes.append(f"the loop does not see files that git does not track: {named(dirty.untracked)}")
    if dirty.nested:
        notes.append(f"the loop does not see repositories within the repository: {named(dirty.nested)}")
    return notes


@frozen
class _Files:
    """What a commit holds that is not simply a file."""

    submodules: tuple[str, ...]
    attributes: tuple[str, ...]
    """Ids of its `.gitattributes`."""

    @classmethod
    async def of(cls, git: Git, commit: str) -> "_Files":
        try:
            told = await git.run("ls-tree", "-r", "-z", commit, output_limit_bytes=_LISTING_BYTES)
        except InfrastructureFault as exc:
            raise RepositoryRefused(
                f"commit {commit[:12]!r} is not whole ({exc}); fetch what is missing, `git fsck` shows it"
            ) from exc
        submodules, attributes = [], []
        for line in told.stdout.split(b"\0"):
            head, _, path = line.partition(b"\t")
            if head.startswith(b"160000 "):
                submodules.append(os.fsdecode(path))
            elif path == b".gitattributes" or path.endswith(b"/.gitattributes"):
                attributes.append(head.split()[2].decode())
        return cls(tuple(submodules), tuple(attributes))


async def _about_files(git: Git, files: _Files) -> list[str]:
    notes = []
    if files.submodules:
        notes.append(f"submodules stay empty in the loop: {named(files.submodules)}")
    patterns = []
    asked = "".join(f"{name}\n" for name in files.attributes[:_MAX_ATTRIBUTES])
    if asked:
        told = await git.run("cat-file", "--batch", stdin=asked.encode(), output_limit_bytes=_LISTING_BYTES)
        lines = [line.split() for line in told.stdout.split(b"\n")]
        patterns = sorted({os.fsdecode(words[0]) for words in lines if b"filter=lfs" in words[1:]})
    if patterns:
        notes.append(f"files that Git LFS holds stay pointers in the loop: {named(patterns)}")
    return notes
