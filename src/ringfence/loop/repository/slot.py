"""A clone for one story at a time: a work tree and a git directory of its own, never written from inside."""

import os
import re
import shutil
from pathlib import Path

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, UsageError, next_step
from ringfence.frozen import frozen
from ringfence.loop.repository.making import link_objects
from ringfence.loop.repository.place import BRANCH, Place, Record, git_on, write_whole
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import Git, write_clean_git_dir

_CHECKOUT_S = 600.0
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
MAX_SLOTS = 256


@frozen
class Slot:
    """One clone."""

    number: int
    path: Path
    """Its work tree: what a run is given as its workspace, to be cloned."""
    inside: Path
    """The directory in it that the loop works in; `path` itself, unless a subdirectory was named."""

    @property
    def git_dir(self) -> Path:
        """Its git directory."""
        return self.path / ".git"


def check_id(commit: str) -> str:
    """A commit's whole id, as it was given.

    Raises:
        UsageError: It is none.
    """
    if not _ID.fullmatch(commit):
        raise UsageError(f"{commit!r} is no whole id of a commit")
    return commit


async def make_slot(place: Place, record: Record, slot: Slot) -> None:
    """Make the clone where there is none: a git directory with all objects of the loop, and no files yet.

    The caller holds the locks of the slot and of the loop.

    Raises:
        InfrastructureFault: The disk is full.
    """
    if slot.git_dir.is_dir():
        return
    try:
        await anyio.to_thread.run_sync(_make, place, record, slot)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not make {str(slot.path)!r}: {exc.strerror}; {next_step(exc)}"
        ) from exc


def _make(place: Place, record: Record, slot: Slot) -> None:
    if os.path.lexists(slot.path):
        remove_tree(slot.path)
    new = slot.path.with_name(f"{slot.number}.new")
    if os.path.lexists(new):
        remove_tree(new)
    git_dir = make_private_dir(new) / ".git"
    write_clean_git_dir(git_dir, object_format=record.object_format)
    config = git_dir / "config"
    config.write_bytes(config.read_bytes().replace(b"bare = true", b"bare = false"))
    (git_dir / "HEAD").write_text(f"ref: {BRANCH}\n")
    for name in ("packed-refs", "shallow"):
        if (place.git_dir / name).exists():
            shutil.copyfile(place.git_dir / name, git_dir / name)
    link_objects(place.git_dir / "objects", git_dir / "objects")
    new.rename(slot.path)


async def bring(place: Place, record: Record, slot: Slot, commit: str, *, locks: tuple[int, int]) -> None:
    """See that a slot has a commit of the loop's.

    Raises:
        UsageError: Neither has it.
    """
    check_id(commit)
    slot_lock, loop_lock = locks
    if await has_commit(git_on(slot.git_dir, slot_lock), commit):
        return
    loop = git_on(place.git_dir, loop_lock)
    if not await has_commit(loop, commit):
        raise UsageError(f"{commit!r} is no commit of this loop")
    await carry(loop, slot.git_dir, commit, known=record.base)


async def has_commit(git: Git, commit: str) -> bool:
    """Whether a git directory has a commit."""
    return (await git.run("cat-file", "-e", f"{commit}^{{commit}}", accept=(0, 1, 128))).ok


async def carry(source: Git, target: Path, commit: str, *, known: str) -> None:
    """Put a commit, and what it leads to beyond `known`, among the objects of another git directory of the loop's."""
    await source.run(
        "pack-objects",
        "--revs",
        "--non-empty",
        "--delta-base-offset",
        "-q",
        # Git puts the pack there first and its index last.
        target / "objects/pack/pack",
        stdin=f"{commit}\n^{known}\n".encode(),
        timeout_s=_CHECKOUT_S,
    )


async def put_at(slot: Slot, commit: str, *, lock: int) -> None:
    """Make the work tree and the index exactly a commit; nothing else is left, ignored or not.

    Raises:
        InfrastructureFault: The disk is full, or the commit cannot be checked out.
    """
    await anyio.to_thread.run_sync(_remove_locks, slot.git_dir)
    git = git_on(slot.git_dir, lock, work_tree=slot.path)
    if not await _checked_out(git, commit):
        # The index is damaged, or something lies there that git cannot remove: from nothing, then.
        await anyio.to_thread.run_sync(_empty, slot)
        await git.run("read-tree", "--reset", "-u", commit, timeout_s=_CHECKOUT_S)
    await anyio.to_thread.run_sync(write_whole, slot.git_dir / BRANCH, f"{commit}\n".encode())


async def _checked_out(git: Git, commit: str) -> bool:
    # Clean first: a directory in the way of a file, and what a killed checkout wrote, are untracked.
    cleaned = await git.run("clean", "-ffdxq", timeout_s=_CHECKOUT_S, accept=range(256))
    if not cleaned.ok or cleaned.stderr.strip():
        return False
    done = await git.run("read-tree", "--reset", "-u", commit, timeout_s=_CHECKOUT_S, accept=range(256))
    return done.ok and not done.stderr.strip()


def _remove_locks(git_dir: Path) -> None:
    """Remove what killed processes left; none of them lives, for we have the lock they would have."""
    (git_dir / "HEAD").write_text(f"ref: {BRANCH}\n")
    for folder, folders, names in os.walk(git_dir):
        if folder == str(git_dir) and "objects" in folders:
            folders.remove("objects")
        for name in names:
            if name.endswith(".lock") or name.startswith("fast_import_crash_"):
                Path(folder, name).unlink(missing_ok=True)


def _empty(slot: Slot) -> None:
    for entry in list(slot.path.iterdir()):
        if entry.name == ".git":
            continue
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink()
    (slot.git_dir / "index").unlink(missing_ok=True)
