"""Finds the user's repository, and opens it for reading without running git on it.

Git runs on a temporary git directory that borrows the user's objects and has copies of the refs and the index. So hooks,
filters, replacements, grafts and settings of the repository have no effect.
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
    is_true,
    parse_format,
    read_effective_config,
)
from ringfence.sandbox.workspace.git.packs import quarantine
from ringfence.sandbox.workspace.git.refs import Refs, read_refs
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.run_as import Actor


@frozen
class Source:
    """The user's repository."""

    root: Path
    """The top directory, resolved; the git directory of a bare repository."""
    inside: bytes
    """The directory that the user named, relative to the top; empty for the top itself."""
    layout: GitLayout
    actor: Actor
    """The user as whom the repository is read and written."""
    is_bare: bool
    object_format: str
    config: dict[str, str]
    """The settings in its configuration file and in that of the work tree, without included files."""

    @property
    def is_partial(self) -> bool:
        """Whether it is a partial clone, which can lack objects that were not fetched."""
        return "extensions.partialclone" in self.config

    @property
    def is_sparse(self) -> bool:
        """Whether only some files of a commit are checked out."""
        return is_true(self.config.get("core.sparsecheckout", ""))


def find_source(path: Path) -> Source:
    """Find the repository that contains a directory.

    Raises:
        RepositoryRefused: No repository contains it, or a loop cannot start from the repository.
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
    """Return the nearest directory, from the path upwards, with a `.git` that has the same owner as the path.

    A `.git` of another user, such as one in a world-writable directory further up, is refused.
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
    config = actor.call_sync(lambda: read_effective_config(layout))
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
class SourceView:
    """A temporary git directory from which the user's objects and refs can be read."""

    git: Git
    refs: Refs
    is_shallow: bool

    @property
    def branch(self) -> str | None:
        """The branch that HEAD is on, in full; None if it is on none."""
        text = self.refs.head.decode("utf-8", "surrogateescape").strip()
        return text[4:].strip() if text.startswith("ref:") else None

    async def commit(self, revision: str) -> str | None:
        """Resolve a revision to a commit id; None if there is no such commit."""
        command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        parsed = await self.git.run(*command, accept=(0, 1, 128))
        return parsed.stdout.decode().strip() if parsed.ok else None


@asynccontextmanager
async def open_source(source: Source) -> AsyncIterator[SourceView]:
    """Open a repository for reading; the view's directory is removed when the context ends.

    Raises:
        InfrastructureFault: The directory could not be created.
    """
    refs = await source.actor.call(lambda: read_refs(source.layout, source.object_format))
    async with quarantine(source.layout, refs, source.actor) as git:
        is_shallow = await source.actor.call((git.directory / "shallow").exists)
        yield SourceView(git, refs, is_shallow)
