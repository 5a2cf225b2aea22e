"""Checks packs that come from elsewhere before any of their objects are kept, and copies packs without git.

A pack of some hundred bytes can describe an object of any size: a delta copies parts of its base, which may be a delta
itself. So git reads it under bounds, and then the declared sizes of its objects are checked, for which git reads a few
bytes of each: every later git of the user has to cope with the imported objects, too.

Objects are added to a repository by copying files: `git fetch` in the user's repository would obey the settings for
remotes in its configuration and the files that this includes (docs/adr/0030-git-on-the-host.md).
"""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import LARGE, Git, write_clean_git_dir
from ringfence.sandbox.workspace.git.layout import GitLayout, read_small
from ringfence.sandbox.workspace.git.refs import Refs
from ringfence.sandbox.workspace.run_as import Actor, scratch_directory
from ringfence.sandbox.workspace.snapshot.objects import NAMES_AT, quoted
from ringfence.sandbox.workspace.tree import Tree

MAX_OBJECT_BYTES = 256 * 1024**2
MAX_TOTAL_BYTES = 16 * 1024**3
MAX_OBJECTS = 2_000_000
_INDEX_S = 300.0
_PACKING_S = 900.0


class PackRefused(InfrastructureFault):
    """A pack was rejected: it is corrupt, or too large when unpacked."""


async def take_pack(git: Git, pack: bytes, *, strict: str = "--strict") -> None:
    """Store a pack in a git directory that ringfence made, and check each of its objects.

    Does not use `git fetch` of a bundle, whose objects git 2.39 does not check even with `fetch.fsckObjects`.

    Args:
        git: The git directory; only its packs may be used afterwards, and none if this raises.
        pack: May be thin: its deltas may refer to objects that the directory can already read.
        strict: How `index-pack` checks objects.

    Raises:
        PackRefused: It is not valid, or its objects are too many or too large.
        GitBoundReached: Git needed more time or memory than it may use.
    """
    command = ("index-pack", "--stdin", "--fix-thin", strict)
    checked = await git.run(*command, stdin=pack, timeout_s=_INDEX_S, accept=(0, 1, 128))
    if not checked.ok:
        said = " ".join(checked.stderr.decode("utf-8", "replace").split())[:300]
        raise PackRefused(f"`git index-pack {strict}` rejected the objects: {said!r}")
    (name,) = checked.stdout.decode("ascii", "replace").split()[-1:]
    folder = git.directory / "objects" / "pack"
    index = await git.actor.call((folder / f"pack-{name}.idx").read_bytes)
    count, size = int.from_bytes(index[NAMES_AT - 4 : NAMES_AT]), len(name) // 2
    if count > MAX_OBJECTS:
        raise PackRefused(f"there are {count} objects; the limit is {MAX_OBJECTS}")
    starts = range(NAMES_AT, NAMES_AT + count * size, size)
    await _check_sizes(git, [index[start : start + size].hex() for start in starts])


async def _check_sizes(git: Git, names: Sequence[str]) -> None:
    wanted = "\n".join((*names, ""))
    sizes = await git.run(
        "cat-file", "--batch-check=%(objectsize) %(objectname)", stdin=wanted.encode("ascii")
    )
    total = 0
    for line in sizes.stdout.decode("ascii", "replace").splitlines():
        size, _, name = line.partition(" ")
        total += int(size)
        if int(size) > MAX_OBJECT_BYTES:
            raise PackRefused(
                f"object {name} is {size} bytes unpacked; the limit is {MAX_OBJECT_BYTES}; leave that file out of "
                "the commits"
            )
    if total > MAX_TOTAL_BYTES:
        raise PackRefused(f"the objects are {total} bytes unpacked; the limit is {MAX_TOTAL_BYTES}")


@asynccontextmanager
async def quarantine(
    layout: GitLayout, refs: Refs, actor: Actor, *, index: Mapping[str, bytes] | None = None
) -> AsyncIterator[Git]:
    """Create a temporary git directory that can read the user's objects and has the given refs.

    No hook, filter, replacement, graft or setting of the user's repository takes effect in it.

    Args:
        layout: The user's repository.
        refs: The refs that it has here.
        actor: The user as which its objects are read.
        index: Files of its index, if git needs them.

    Raises:
        InfrastructureFault: It could not be made.
    """
    async with scratch_directory(actor) as scratch:
        git = Git(scratch / "git", actor=actor)
        try:
            await actor.call(lambda: _lean_on(git.directory, layout, refs, index or {}))
        except OSError as exc:
            raise InfrastructureFault(
                f"could not make {str(git.directory)!r}: {exc.strerror}; is the disk full?"
            ) from exc
        yield git


def _lean_on(directory: Path, layout: GitLayout, refs: Refs, index: Mapping[str, bytes]) -> None:
    # In quotes, as git reads any path in this file.
    lines = b"".join(quoted(os.fsencode(database)) + b"\n" for database in layout.databases)
    files = {**refs.files(), **index, "objects/info/alternates": lines}
    if shallow := read_small(layout.common, b"shallow"):
        files["shallow"] = shallow
    write_clean_git_dir(directory, object_format=refs.object_format, files=files)


async def copy_history(git: Git, tips: Iterable[str], target: Path) -> None:
    """Copy the objects that are reachable from the tips to a git directory, as one pack.

    Args:
        git: A git directory that ringfence made, in a scratch directory of a user that may read the objects.
        tips: Commits, tags, trees and blobs. Parts of their history that a partial clone never fetched are left out.
        target: The git directory, which belongs to the caller.

    Raises:
        InfrastructureFault: Git failed, or the disk is full.
    """
    scratch = git.directory.parent
    options = ("--revs", "--missing=allow-any", "--delta-base-offset", "-q")
    wanted = "".join(f"{tip}\n" for tip in dict.fromkeys(tips))
    packing = replace(git, bounds=LARGE)
    await packing.run("pack-objects", *options, scratch / "pack", stdin=wanted.encode(), timeout_s=_PACKING_S)
    await Actor.current().call(lambda: copy_packs(scratch, target, b"objects/pack"))


def copy_packs(source: Path, target: Path, place: bytes) -> None:
    """Copy the packs of one directory to another below `target`, each index last, as git ignores a pack without one.

    Raises:
        OSError: It cannot be read or written, or a link is on the way.
        InfrastructureFault: There is no pack.
    """
    with Tree(source) as packs, Tree(target) as tree:
        names = [name for name in packs.children(b"") if name.endswith((b".pack", b".rev", b".idx"))]
        if not any(name.endswith(b".idx") for name in names):
            raise InfrastructureFault(f"git made no pack in {str(source)!r}; is the disk full?")
        folder = tree.directory(place, create=True)
        for name in sorted(names, key=lambda name: (name.endswith(b".idx"), name)):
            if tree.lstat(place + b"/" + name) is None:
                _copy_file(packs.directory(b""), folder, name)


def _copy_file(source: int, target: int, name: bytes) -> None:
    partial = f"tmp_ringfence_{secrets.token_hex(8)}"
    # O_NONBLOCK: a FIFO must not hang us.
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        os.fdopen(os.open(name, os.O_RDONLY | flags, dir_fd=source), "rb") as reading,
        os.fdopen(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o444, dir_fd=target), "wb"
        ) as writing,
    ):
        shutil.copyfileobj(reading, writing, 1024**2)
        os.fchmod(writing.fileno(), 0o444)
    os.rename(partial, os.fsdecode(name), src_dir_fd=target, dst_dir_fd=target)
