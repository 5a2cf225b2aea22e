"""The loop's own repository: the commit it starts from with all history, and nothing else of the user's."""

import os
import shutil
from pathlib import Path

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.loop.repository.looking import Look
from ringfence.loop.repository.place import BRANCH, Place, Record, encoded, git_on, write_record
from ringfence.loop.repository.refusal import RepositoryRefused
from ringfence.loop.repository.source import Opened, opened
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import write_clean_git_dir, write_git_dir
from ringfence.sandbox.workspace.git.packs import copy_history
from ringfence.sandbox.workspace.git.refs import Refs
from ringfence.sandbox.workspace.tree import Tree

_PACKING_S = 900.0
_MOST_TAGS = 10_000


async def make_repository(found: Look, place: Place, *, loop: str, lock: int) -> Record:
    """Make the bare repository, beside its place, and put it there when it is whole.

    Raises:
        RepositoryRefused: The user's repository lacks a part of the commit.
        InfrastructureFault: Git failed, or the disk is full.
    """
    new = place.git_dir.with_name("loop.git.new")
    source = found.source
    record = Record(
        loop=loop,
        source=encoded(source.root),
        inside=encoded(source.inside),
        base=found.base,
        branch=found.branch,
        object_format=source.object_format,
        name=found.name,
        email=found.email,
    )
    try:
        await anyio.to_thread.run_sync(_begin, new, source.object_format)
        async with opened(source) as seen:
            tags = await _tags(seen, found.base)
            await copy_history(seen.git, [found.base, *tags.values()], new)
            shallow = seen.git.directory / "shallow"
            if seen.is_shallow:
                (new / "shallow").write_bytes(await source.actor.call(shallow.read_bytes))
        refs = Refs(f"ref: {BRANCH}\n".encode(), {BRANCH: found.base, **tags}, {})
        write_git_dir(new, refs.files())
        await _check_whole(new, found.base, lock)
        write_record(new, record)
        new.rename(place.git_dir)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(new)!r}: {exc.strerror}; {next_step(exc)}") from exc
    return record


def _begin(new: Path, object_format: str) -> None:
    if os.path.lexists(new):
        remove_tree(new)
    make_private_dir(new)
    write_clean_git_dir(new, object_format=object_format)


async def _tags(seen: Opened, base: str) -> dict[str, str]:
    """Tags in the history of the base: tools that make a version out of them work in the loop, too."""
    form = "--format=%(objectname) %(refname)"
    told = await seen.git.run(
        "for-each-ref", f"--merged={base}", f"--count={_MOST_TAGS}", form, "refs/tags", accept=(0, 1, 128)
    )
    lines = os.fsdecode(told.stdout).splitlines() if told.ok else []
    return {name: target for target, _, name in (line.partition(" ") for line in lines)}


async def _check_whole(new: Path, base: str, lock: int) -> None:
    """See that every file of the commit came with it."""
    told = await git_on(new, lock).run(
        "rev-list", "--objects", "--quiet", "--no-walk", base, accept=(0, 1, 128), timeout_s=_PACKING_S
    )
    if not told.ok:
        raise RepositoryRefused(
            f"files of commit {base[:12]!r} are missing in the repository: it is a partial clone, or damaged; run"
            " `git checkout` or `git fsck` there to have or find them"
        )


def link_objects(source: Path, target: Path) -> None:
    """Give a slot the loop's objects: by links, for both are the loop's, and git never changes an object in place.

    Raises:
        OSError: They cannot be copied.
    """
    with Tree(source) as tree:
        for folder, names in tree.walk(1_000_000):
            place = target / os.fsdecode(folder)
            place.mkdir(parents=True, exist_ok=True)
            for name in names:
                _link(source / os.fsdecode(folder) / name, place / name)


def _link(source: Path, target: Path) -> None:
    if source.is_dir() or target.exists() or source.name.startswith("tmp_"):
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
