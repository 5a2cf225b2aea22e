"""A branch of the user's, moved forward to the loop's work: only where nothing can be lost by it.

One that is checked out nowhere moves alone. The one that is checked out in the user's work tree moves with the files
and the index, and only if all of them are as in the commit: what differs between the two commits, and nothing else, is
written, each file by a rename. Done again after a crash it comes to its end.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.loop.repository.converting import why_converted, why_set_to_convert
from ringfence.loop.repository.delivery import checked_out_in, set_ref, short
from ringfence.loop.repository.dirty import look_at_tree, prepare_index
from ringfence.loop.repository.paths import MODES
from ringfence.loop.repository.refusal import DeliveryRefused, named
from ringfence.loop.repository.source import Opened, Source, opened
from ringfence.loop.repository.user_files import Step, states_of, steps_between, write_files
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.layout import read_small
from ringfence.sandbox.workspace.run_as import scratch_directory

_BUSY = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
)


async def forward(source: Source, branch: str, tip: str, *, loop: str, delivered: str) -> None:
    """Move a branch of the user's forward to `tip`, whose objects are there.

    Args:
        source: The user's repository.
        branch: In full.
        tip: Where to.
        loop: The loop's id, for the reflog.
        delivered: The branch with the loop's work, as the user would type it.

    Raises:
        DeliveryRefused: Something could be lost; nothing was changed.
        InfrastructureFault: A file could not be written; to deliver again goes on with it.
    """
    advice = f"`git merge --ff-only {delivered}`"
    async with opened(source) as seen:
        there = seen.refs.direct.get(branch)
        if there is None:
            raise DeliveryRefused(
                f"there is no branch {short(branch)!r} to merge into; merge {delivered!r} by hand"
            )
        if there != tip and await _is_in(seen.git, tip, there):
            return  # the user has merged it, and gone on
        if not await _is_in(seen.git, there, tip):
            raise DeliveryRefused(
                f"{short(branch)!r} has commits that the loop's work has not, and it is only ever moved forward: "
                f"`git merge {delivered}` joins them"
            )
        holder = await source.actor.call(lambda: checked_out_in(source, branch))
        if holder is None:
            if there != tip:
                await set_ref(source, branch, tip, there, loop=loop)
            return
        if source.is_bare or not seen.refs.head.strip().endswith(os.fsencode(branch)):
            raise DeliveryRefused(
                f"{short(branch)!r} is checked out in {str(holder)!r}: there, type {advice}"
            )
        await _forward_tree(source, seen, branch, _Way(there, tip, loop, advice))


async def _is_in(git: Git, commit: str, branch: str) -> bool:
    told = await git.run("merge-base", "--is-ancestor", commit, branch, accept=(0, 1))
    return told.exit_code == 0


@frozen
class _Way:
    before: str
    tip: str
    loop: str
    advice: str

    @property
    def mark(self) -> bytes:
        """What tells our lock from git's."""
        return f"ringfence loop {self.loop.encode('ascii', 'backslashreplace').decode()!r}".encode()


async def _forward_tree(source: Source, seen: Opened, branch: str, way: _Way) -> None:
    began = await source.actor.call(lambda: _lock(source, way))
    goes_on = began is not None
    try:
        old = began or way.before
        if old == way.tip:
            return
        why = await source.actor.call(lambda: _why_not_here(source))
        why = why or await why_converted(seen.git, way.tip)
        if why is not None:
            raise DeliveryRefused(
                f"the files of {short(branch)!r} are not updated, for {why}; type {way.advice}"
            )
        steps = await steps_between(seen.git, old, way.tip)
        await _check_clean(source, seen, steps, way, goes_on=goes_on)
        await write_files(source, seen.git, steps)
        await _prepare_index(source, seen, steps)
        with anyio.CancelScope(shield=True):
            if way.before != way.tip:
                await set_ref(source, branch, way.tip, way.before, loop=way.loop)
            await source.actor.call(lambda: _new_index(source).replace(source.layout.directory / "index"))
    finally:
        await source.actor.clean_up(lambda: _unlock(source))


def _index_lock(source: Source) -> Path:
    return source.layout.directory / "index.lock"


def _marked(source: Source) -> Path:
    return source.layout.directory / "index.ringfence-lock"


def _unlock(source: Source) -> None:
    _new_index(source).unlink(missing_ok=True)
    _marked(source).unlink(missing_ok=True)
    _index_lock(source).unlink(missing_ok=True)


def _lock(source: Source, way: _Way) -> str | None:
    """Keep every other git from the index; the commit that an earlier try of ours began at, if it was killed."""
    lock = _index_lock(source)
    marked = _marked(source)
    try:
        marked.unlink(missing_ok=True)
        marked.write_bytes(way.mark + b" " + way.before.encode() + b"\n")
        # At once there and with its text: a lock that is empty is one that git has just made.
        os.link(marked, lock)
        marked.unlink()
    except FileExistsError:
        marked.unlink(missing_ok=True)
        there = read_small(source.layout.directory, b"index.lock", 4096) or b""
        mark, _, began = there.rstrip(b"\n").rpartition(b" ")
        if mark == way.mark and len(began) == len(way.before):
            return began.decode("ascii", "replace")
        raise DeliveryRefused(
            f"{str(lock)!r} is there: git is at work in {str(source.root)!r}, or was killed; wait for it, or remove"
            " the file, and deliver again"
        ) from None
    except OSError as exc:
        raise DeliveryRefused(
            f"{str(lock)!r} cannot be made ({exc.strerror}), so the files stay; type {way.advice}"
        ) from exc
    return None


def _why_not_here(source: Source) -> str | None:
    for name in _BUSY:
        if os.path.lexists(source.layout.directory / name):
            return f"a merge, rebase or the like goes on there ({name})"
    if source.config.get("core.sparsecheckout", "").lower() in {"true", "yes", "on", "1"}:
        return "the checkout is sparse"
    return why_set_to_convert(source)


async def _check_clean(source: Source, seen: Opened, steps: list[Step], way: _Way, *, goes_on: bool) -> None:
    """See that nothing of the user's is overwritten.

    Raises:
        DeliveryRefused: Something would be.
    """
    states = await source.actor.call(lambda: states_of(source, steps))
    in_the_way = [step.path for step in steps if states[step.path] not in {step.before, step.after}]
    in_the_way += [
        step.path for step in steps if any(s and s[0] not in MODES for s in (step.before, step.after))
    ]
    # Of a try that was killed: what it wrote is no change of the user's.
    allowed = {step.path for step in steps if goes_on or states[step.path] == step.after}
    dirty = await look_at_tree(source, seen)
    changed = [path for path in dirty.changed if os.fsencode(path) not in allowed]
    if changed:
        raise DeliveryRefused(
            f"{str(source.root)!r} has changes that are not committed ({named(changed)}), so the files stay; commit or"
            f" stash them, then type {way.advice}"
        )
    if in_the_way:
        raise DeliveryRefused(
            f"files that git does not track are in the way ({named(sorted({os.fsdecode(p) for p in in_the_way}))});"
            f" move them, then type {way.advice}"
        )


async def _prepare_index(source: Source, seen: Opened, steps: list[Step]) -> None:
    """Make an index beside the user's that has the new files, and all else as it was."""
    async with scratch_directory(source.actor) as scratch:
        git = Git(scratch / "git", work_tree=source.root, actor=source.actor)
        await source.actor.call(lambda: prepare_index(git.directory, seen.git.directory, source.root, b""))
        await git.run("update-index", "-z", "--index-info", stdin=_lines(steps, source.object_format))
        # The marks of the files that were just written; others' are as they were.
        await git.run("update-index", "-q", "--refresh", accept=(0, 1))
        try:
            await source.actor.call(
                lambda: _new_index(source).write_bytes((git.directory / "index").read_bytes())
            )
        except OSError as exc:
            raise InfrastructureFault(
                f"could not write the index of {str(source.root)!r}: {exc.strerror}; {next_step(exc)}, and deliver again"
            ) from exc


def _new_index(source: Source) -> Path:
    return source.layout.directory / "index.ringfence"


def _lines(steps: list[Step], object_format: str) -> bytes:
    nothing = "0" * (64 if object_format == "sha256" else 40)
    rows: Mapping[bytes, tuple[int, str]] = {step.path: step.after or (0, nothing) for step in steps}
    # What goes is first: a file and a directory of one name cannot be in an index at once.
    ordered = sorted(rows.items(), key=lambda row: (row[1][0] != 0, row[0]))
    return b"".join(b"%o %s\t%s\0" % (mode, name.encode(), path) for path, (mode, name) in ordered)
