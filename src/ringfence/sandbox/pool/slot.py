"""The directories that a sandbox started ahead shows, empty at first; at hand-over a run's own contents move in.

A mount follows the directory it was made of, wherever that is renamed to and whatever comes into it. So the
sandbox is started on a skeleton, and what was prepared for the run is moved into that without copying; then
the skeleton takes the place of the run's own. Nothing ran inside before but the image's own interpreter, which can be
hostile: what is in a skeleton is looked at, and reached through no link.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.errors import InfrastructureFault, next_step
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Placement
from ringfence.sandbox.pool.shape import moved

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OWN = ("git", "work")
"""What `workspace.run.prepare` makes in a run's directory for its sandboxes."""


def make_skeleton(placement: Placement, run_dir: Path, slot: Path) -> Placement:
    """Make in `slot` what a sandbox of the same shape is started on; returns its placement.

    Args:
        placement: Of a run that was prepared.
        run_dir: Its directory.
        slot: An empty directory of the pool's.

    Raises:
        OSError: It cannot be made.
    """
    target = moved(placement, run_dir, slot)
    pairs = [
        (overlay.source, copy.source)
        for overlay, copy in zip(placement.overlays, target.overlays, strict=True)
    ]
    if placement.workspace_source is not None and target.workspace_source is not None:
        pairs.insert(0, (placement.workspace_source, target.workspace_source))
    for original, copy in sorted(pairs, key=lambda pair: len(pair[1].parts)):
        if copy.is_relative_to(slot):
            _make_like(original, copy)
    _make_mount_points(target, slot)
    return target


def _make_mount_points(target: Placement, slot: Path) -> None:
    """What lies inside of the slot's directories and is mounted upon."""
    mounts = [(overlay.target, overlay.source) for overlay in target.overlays]
    if target.workspace is not None and target.workspace_source is not None:
        mounts.insert(0, (target.workspace, target.workspace_source))
    for number, (place, source) in enumerate(mounts):
        around = [one for one in mounts[:number] if place != one[0] and place.is_relative_to(one[0])]
        if not around:
            continue
        outer_place, outer_source = max(around, key=lambda one: len(one[0].parts))
        if outer_source.is_relative_to(slot):
            _make_like(source, outer_source / place.relative_to(outer_place))


def _make_like(original: Path, copy: Path) -> None:
    """An empty file or directory with the owner and mode of another."""
    status = original.lstat()
    if not os.path.lexists(copy):
        if stat.S_ISDIR(status.st_mode):
            copy.mkdir(mode=0o700)
        else:
            copy.touch(mode=0o600)
    _set_like(copy, status)


def _set_like(path: Path, status: os.stat_result) -> None:
    now = path.lstat()
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
    path.chmod(stat.S_IMODE(status.st_mode))


def fits(slot: Path, run_dir: Path) -> bool:
    """Whether everything in a slot's skeleton has its like in the run's directory."""
    return all(_fits(slot / name, run_dir / name) for name in _OWN)


def _fits(skeleton: Path, own: Path) -> bool:
    if not os.path.lexists(skeleton):
        return not os.path.lexists(own)
    if not os.path.lexists(own) or _kind(skeleton) != _kind(own):
        return False
    if _kind(skeleton) != stat.S_IFDIR:
        return _kind(skeleton) == stat.S_IFREG
    return all(_fits(inner, own / inner.name) for inner in skeleton.iterdir())


def _kind(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode)


def hand_over(slot: Path, run_dir: Path) -> None:
    """Move a run's own contents into a slot's directories, and these to where the run's own were.

    The directories are shown inside already. An image's own programs may change them at any moment, so nothing is
    reached by a path, and through no link.

    Raises:
        InfrastructureFault: It cannot be done; neither is as it was.
    """
    try:
        for name in _OWN:
            if (slot / name).is_dir():
                with _opened(run_dir / name) as own, _opened(slot / name) as skeleton:
                    _merge(own, skeleton)
                remove_tree(run_dir / name)
                (slot / name).rename(run_dir / name)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not hand over {str(slot)!r} to {str(run_dir)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


@contextmanager
def _opened(path: Path | str, *, at: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _merge(own: int, skeleton: int) -> None:
    for name in os.listdir(own):
        try:
            there = os.stat(name, dir_fd=skeleton, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, name, src_dir_fd=own, dst_dir_fd=skeleton)
            continue
        if stat.S_ISDIR(there.st_mode):
            with _opened(name, at=own) as inner, _opened(name, at=skeleton) as target:
                _merge(inner, target)
        else:
            _fill(name, own, skeleton)
    status = os.fstat(own)
    os.fchown(skeleton, status.st_uid, status.st_gid)
    os.fchmod(skeleton, stat.S_IMODE(status.st_mode))


def _fill(name: str, own: int, skeleton: int) -> None:
    """Copy a file's contents into one that is mounted, and so must stay the same file."""
    with (
        os.fdopen(os.open(name, os.O_RDONLY | _FILE, dir_fd=own), "rb") as reading,
        os.fdopen(os.open(name, os.O_WRONLY | _FILE, dir_fd=skeleton), "wb") as writing,
    ):
        if not stat.S_ISREG(os.fstat(writing.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no file any more")
        writing.truncate()
        shutil.copyfileobj(reading, writing)
        writing.flush()
        status = os.fstat(reading.fileno())
        os.fchmod(writing.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(writing.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.unlink(name, dir_fd=own)
