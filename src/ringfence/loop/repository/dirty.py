"""What of the user's work tree is in no commit: a loop does not see it, and never touches it."""

import os
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.loop.repository.source import Opened, Source
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT, has_git
from ringfence.sandbox.workspace.run_as import scratch_directory
from ringfence.sandbox.workspace.snapshot.index import Index, read_index

_COPIED = ("filemode", "symlinks", "ignorecase", "precomposeunicode", "trustctime", "checkstat")
_HARMLESS = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1", "minimal", "default"})
_LISTING_BYTES = 64 * 1024**2
_STATUS_S = 60.0


@frozen
class Dirty:
    """Paths, as text for people; each list sorted."""

    changed: tuple[str, ...] = ()
    """Changed, added to the index or deleted since HEAD."""
    untracked: tuple[str, ...] = ()
    """Not in the index and not ignored; directories end in a slash."""
    nested: tuple[str, ...] = ()
    """Repositories in the work tree that are not submodules."""


async def look_at_tree(source: Source, opened: Opened, *, excludes: bytes = b"") -> Dirty:
    """Compare the user's work tree and a copy of the index with HEAD; nothing of the user's is written.

    Args:
        source: The repository, with a work tree.
        opened: Its objects and refs.
        excludes: The user's own ignore rules.

    Raises:
        InfrastructureFault: Git does not answer in time.
    """
    async with scratch_directory(source.actor) as scratch:
        git = Git(
            scratch / "git",
            work_tree=source.root,
            actor=source.actor,
            options=file_options(source),
        )
        await source.actor.call(
            lambda: prepare_index(git.directory, opened.git.directory, source.root, excludes)
        )
        told = await git.run(
            "status",
            "--porcelain=v1",
            "-z",
            "--no-renames",
            "--untracked-files=normal",
            # Git would run in each of them, on its own configuration.
            "--ignore-submodules=all",
            timeout_s=_STATUS_S,
            output_limit_bytes=_LISTING_BYTES,
        )
    return await source.actor.call(lambda: _sorted(told.stdout, source.root))


def file_options(source: Source) -> tuple[str, ...]:
    """The user's settings for git that say what their file system can do."""
    values = {name: source.config.get(f"core.{name}", "").lower() for name in _COPIED}
    return tuple(f"core.{name}={value}" for name, value in values.items() if value in _HARMLESS)


def prepare_index(directory: Path, opened: Path, root: Path, excludes: bytes) -> None:
    """Make a git directory of ours with a copy of the user's index.

    Args:
        directory: Where; absent.
        opened: The one that sees the user's objects and refs.
        root: The user's work tree.
        excludes: The user's own ignore rules.

    Raises:
        InfrastructureFault: The index is larger than is copied.
    """
    index = read_index(root, room_bytes=INDEX_LIMIT) or Index()
    if index.is_left_out:
        raise InfrastructureFault(f"the index of {str(root)!r} is too large to be looked at")
    index.write(directory)
    for name in ("HEAD", "packed-refs", "objects/info/alternates"):
        (directory / name).write_bytes((opened / name).read_bytes())
    config = (opened / "config").read_bytes().replace(b"bare = true", b"bare = false")
    (directory / "config").write_bytes(config)
    (directory / "info" / "exclude").write_bytes(index.excludes + b"\n" + excludes)


def _sorted(listing: bytes, root: Path) -> Dirty:
    changed, untracked, nested = [], [], []
    for line in listing.split(b"\0"):
        kind, path = line[:2], os.fsdecode(line[3:])
        if kind == b"??" and path.endswith("/") and has_git(root / path):
            nested.append(path)
        elif kind == b"??":
            untracked.append(path)
        elif path:
            changed.append(path)
    return Dirty(tuple(sorted(changed)), tuple(sorted(untracked)), tuple(sorted(nested)))
