"""The end of a loop: its work as a branch of the user's repository and as a patch, merged only where asked for."""

from pathlib import Path

import anyio.to_thread

from ringfence.frozen import frozen
from ringfence.loop.repository.delivery import Goods, deliver_refs, short
from ringfence.loop.repository.forwarding import forward
from ringfence.loop.repository.merging import tip_of
from ringfence.loop.repository.place import Place, Record, git_on, write_whole
from ringfence.loop.repository.refusal import DeliveryRefused
from ringfence.loop.repository.rejected import patch_of, ref_part, rejected_refs
from ringfence.loop.repository.source import Source
from ringfence.sandbox.workspace.git import Git


@frozen
class Delivered:
    """What the user's repository was given."""

    branch: str
    """The branch, without `refs/heads/`."""
    tip: str
    base: str
    patch: Path | None
    """The whole work as one patch against the base; None where it is larger than 256 MiB."""
    refs: tuple[str, ...] = ()
    """Refs of rejected work that were made."""
    merged_into: str | None = None
    """The branch of the user's that was moved forward to it."""
    why_not_merged: str | None = None
    """Why none was, where one should be, and what to type."""


@frozen
class MergedHome:
    """A branch of the user's that was moved forward to the loop's work."""

    branch: str
    tip: str


async def bring_home(
    place: Place,
    record: Record,
    found: Source,
    *,
    lock: int,
    with_rejected: bool,
    merge: bool,
    into: str | None,
) -> Delivered:
    """Bring a loop's work to the user's repository. The caller holds the loop's lock.

    Raises:
        DeliveryRefused: A branch of that name with other commits is there, or nothing can be written.
        InfrastructureFault: Git failed.
    """
    branch = f"refs/heads/ringfence/loop-{ref_part(record.loop)}"
    git = git_on(place.git_dir, lock)
    tip = await tip_of(git)
    file = place.patches / "loop.patch"
    patch = await patch_of(git, record.base, tip)
    if patch is not None:
        await anyio.to_thread.run_sync(write_whole, file, patch)
    rejected = await _rejected(git, record) if with_rejected else {}
    goods = Goods(git, record.loop, record.base, {branch: tip, **rejected})
    await deliver_refs(goods, found, branch=branch)
    target = f"refs/heads/{into}" if into else record.branch
    why_not = await _forward(found, target, tip, loop=record.loop, branch=short(branch)) if merge else None
    return Delivered(
        branch=short(branch),
        tip=tip,
        base=record.base,
        patch=file if patch is not None else None,
        refs=tuple(sorted(rejected)),
        merged_into=short(target) if merge and target and why_not is None else None,
        why_not_merged=why_not,
    )


async def _forward(found: Source, target: str | None, tip: str, *, loop: str, branch: str) -> str | None:
    """Move a branch of the user's forward; why it was not."""
    if target is None:
        return f"the loop began on no branch; check one out and type `git merge {branch}`"
    try:
        await forward(found, target, tip, loop=loop, delivered=branch)
    except DeliveryRefused as exc:
        return str(exc)
    return None


async def _rejected(git: Git, record: Record) -> dict[str, str]:
    below = f"{rejected_refs(record.loop)}/"
    told = await git.run("for-each-ref", "--format=%(objectname) %(refname)", below)
    lines = (line.partition(" ") for line in told.stdout.decode().splitlines())
    return {name: commit for commit, _, name in lines}
