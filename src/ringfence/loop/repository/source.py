"""The user's repository, found and looked at before anything is made of it.

Git is not run on it: what is asked of git, it is asked on a directory of ours that leans on the user's objects and
holds copies of the refs and the index. So no hook, filter, replacement, graft or setting of the repository counts.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.frozen import frozen
from ringfence.loop.repository.refusal import RepositoryRefused
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.layout import (
    GitLayout,
    examine_git,
    find_bare,
    has_git,
    parse_format,
    read_config,
)
from ringfence.sandbox.workspace.git.packs import quarantine
from ringfence.sandbox.workspace.git.refs import Refs, read_refs
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.run_as import Actor


@frozen
class Source:
    """The user's repository."""

    root: Path
    """Its top, resolved; of one without a work tree the git directory."""
    inside: bytes
    """The directory that was named, relative to the top; empty for the top itself."""
    layout: GitLayout
    actor: Actor
    """On whose behalf it is read and written."""
    is_bare: bool
    object_format: str
    config: dict[str, str]
    """Its plain settings."""

    @property
    def is_partial(self) -> bool:
        """Whether it may lack objects that it never fetched."""
        return "extensions.partialclone" in self.config


def find_source(path: Path) -> Source:
    """Find the repository that a directory lies in.

    Raises:
        RepositoryRefused: There is none, or it is not used.
    """
    resolved = Path(os.path.realpath(path))
    if not resolved.is_dir():
        raise RepositoryRefused(f"{str(path)!r} is no directory; name a git repository")
    if ".git" in resolved.parts:
        raise RepositoryRefused(
            f"{str(path)!r} lies in a git directory; name the work tree that it belongs to"
        )
    actor = Actor.for_files(resolved)
    root = actor.call_sync(lambda: _top(resolved))
    if root is not None:
        found = why_untrusted(root, state_dir()) or actor.call_sync(lambda: examine_git(root))
        if not isinstance(found, GitLayout):
            raise RepositoryRefused(_refusal(root, found or f"{str(root / '.git')!r} is no git repository"))
        return _source(root, os.fsencode(resolved.relative_to(root)), found, actor, is_bare=False)
    layout = actor.call_sync(lambda: find_bare(resolved))
    if layout is None:
        raise RepositoryRefused(
            f"{str(path)!r} is no git repository; make it one with `git init` and commit your files, or name another"
        )
    return _source(resolved, b".", layout, actor, is_bare=True)


def _refusal(root: Path, why: str) -> str:
    return f"a loop cannot start from {str(root)!r}: {why}"


def _top(path: Path) -> Path | None:
    """The nearest directory with a `.git` that belongs to whom the path belongs to.

    One of somebody else further up, in a directory that everybody writes to, is no repository of this path.
    """
    owner = path.stat().st_uid
    for folder in (path, *path.parents):
        if has_git(folder):
            if os.lstat(folder / ".git").st_uid != owner:
                raise RepositoryRefused(
                    f"{str(folder / '.git')!r} belongs to another user than {str(path)!r}; chown one of them, or name"
                    " another repository"
                )
            return folder
    return None


def _source(root: Path, inside: bytes, layout: GitLayout, actor: Actor, *, is_bare: bool) -> Source:
    if layout.refused is not None:
        raise RepositoryRefused(_refusal(root, layout.refused))
    config = actor.call_sync(lambda: read_config(layout.common))
    object_format, unknown = parse_format(config)
    if unknown:
        raise RepositoryRefused(
            _refusal(root, f"it uses {unknown!r}, which ringfence cannot copy; name a clone of it")
        )
    return Source(
        root=root,
        inside=b"" if inside == b"." else inside,
        layout=layout,
        actor=actor,
        is_bare=is_bare,
        object_format=object_format,
        config=config,
    )


@dataclass
class Opened:
    """A git directory of ours that sees the user's objects and refs as they are, and is thrown away."""

    git: Git
    refs: Refs
    is_shallow: bool

    @property
    def branch(self) -> str | None:
        """The branch that HEAD is on, in full; None if it is on none."""
        text = self.refs.head.decode("utf-8", "surrogateescape").strip()
        return text[4:].strip() if text.startswith("ref:") else None

    async def commit(self, revision: str) -> str | None:
        """The commit that a revision names, as git reads it; None if there is none such."""
        command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        told = await self.git.run(*command, accept=(0, 1, 128))
        return told.stdout.decode().strip() if told.ok else None


@asynccontextmanager
async def opened(source: Source) -> AsyncIterator[Opened]:
    """Have git see a repository's objects and refs, on a directory of ours.

    Raises:
        InfrastructureFault: It could not be made.
    """
    refs = await source.actor.call(lambda: read_refs(source.layout, source.object_format))
    async with quarantine(source.layout, refs, source.actor) as git:
        is_shallow = await source.actor.call((git.directory / "shallow").exists)
        yield Opened(git, refs, is_shallow)
