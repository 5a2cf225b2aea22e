"""A pack that came from elsewhere, checked in a git directory that is thrown away before anything of it is kept.

A pack of some hundred bytes can describe an object of any size: a delta copies parts of its base, and that of another
delta. So git reads it under bounds, and then the sizes that its objects declare are looked at, which takes git a few
bytes of each: what is taken over is also what every later git of the user has to bear.
"""

from collections.abc import Sequence

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import Git

MAX_OBJECT_BYTES = 256 * 1024**2
MAX_TOTAL_BYTES = 16 * 1024**3
MAX_OBJECTS = 2_000_000
_INDEX_S = 300.0


class PackRefused(InfrastructureFault):
    """A pack was rejected: it is corrupt, or too large when unpacked."""


async def take_pack(git: Git, pack: bytes, *, strict: str = "--strict") -> None:
    """Store a pack in a git directory of ours, every object of it checked.

    Args:
        git: The git directory; only its packs are of use afterwards, and none if this raises.
        pack: May be thin: its deltas may refer to objects that the directory can already read.
        strict: How `index-pack` checks objects.

    Raises:
        PackRefused: It is not sound, or its objects are too many or too large.
        GitBoundReached: Git needed more time or memory than it may have.
    """
    command = ("index-pack", "--stdin", "--fix-thin", strict)
    checked = await git.run(*command, stdin=pack, timeout_s=_INDEX_S, accept=(0, 1, 128))
    if not checked.ok:
        said = " ".join(checked.stderr.decode("utf-8", "replace").split())[:300]
        raise PackRefused(f"`git index-pack {strict}` rejected the objects: {said!r}")
    name = checked.stdout.decode("ascii", "replace").split()[-1:]
    folder = git.directory / "objects" / "pack"
    index = await git.actor.call((folder / f"pack-{''.join(name)}.idx").read_bytes)
    listed = await git.run("show-index", stdin=index)
    names = [line.split(b" ")[1] for line in listed.stdout.splitlines()]
    if len(names) > MAX_OBJECTS:
        raise PackRefused(f"there are {len(names)} objects; the limit is {MAX_OBJECTS}")
    await _check_sizes(git, names)


async def _check_sizes(git: Git, names: Sequence[bytes]) -> None:
    wanted = b"\n".join((*names, b""))
    sizes = await git.run("cat-file", "--batch-check=%(objectsize) %(objectname)", stdin=wanted)
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
