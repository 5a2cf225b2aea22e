"""The end of a loop: its work as a branch of the user's repository, merged only where asked for."""

from ringfence.frozen import frozen
from ringfence.loop.repository.delivery import Goods, deliver_branch, short
from ringfence.loop.repository.forwarding import forward
from ringfence.loop.repository.merging import tip_of
from ringfence.loop.repository.place import Place, Record, git_on
from ringfence.loop.repository.refusal import DeliveryRefused
from ringfence.loop.repository.rejected import ref_part
from ringfence.loop.repository.source import Source


@frozen
class Delivered:
    """A branch of the user's repository that holds the loop's work."""

    branch: str
    """Without `refs/heads/`."""
    tip: str


async def bring_home(place: Place, record: Record, found: Source, *, lock: int) -> Delivered:
    """Bring a loop's work to the user's repository. The caller holds the loop's lock.

    Raises:
        DeliveryRefused: A branch of that name with other commits is there, or nothing can be written.
        InfrastructureFault: Git failed.
    """
    branch = f"refs/heads/ringfence/loop-{ref_part(record.loop)}"
    git = git_on(place.git_dir, lock)
    tip = await tip_of(git)
    await deliver_branch(Goods(git, record.loop, record.base, branch, tip), found)
    return Delivered(short(branch), tip)


async def merge_home(record: Record, found: Source, done: Delivered) -> Delivered:
    """Move the branch that the loop began on forward to delivered work.

    Raises:
        DeliveryRefused: Something could be lost by it; the text says where the work is and what to type.
        InfrastructureFault: A file could not be written; again goes on with it.
    """
    where = f"the work is in branch {done.branch!r}"
    if record.branch is None:
        raise DeliveryRefused(
            f"{where}; the loop began on no branch; check one out and type `git merge {done.branch}`"
        )
    try:
        await forward(found, record.branch, done.tip, loop=record.loop, delivered=done.branch)
    except DeliveryRefused as exc:
        raise DeliveryRefused(f"{where}; {exc}") from exc
    return Delivered(short(record.branch), done.tip)
