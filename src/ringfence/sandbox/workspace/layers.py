"""Throw-away views of a directory: an overlay whose lower layer is the directory and whose upper one is ours.

What is done in a view lands in the upper layer alone: the list of changes is a walk over that, rolling back is a
fresh one. Neither depends on how many files the directory has. Needs the right to mount (`why_no_layers`), and a
lower directory that belongs to whoever works in the view and that nobody writes to meanwhile: what the kernel then
shows is undefined (https://docs.kernel.org/filesystems/overlayfs.html, "Changes to underlying filesystems").

Unlike a checkpoint, a view covers ignored files, too. The same bounds hold as for any look at what an agent left.
Calls block; run them in a thread.
"""

import ctypes
import fcntl
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.layer_changes import LayerChanges, changes_between

_NOSUID, _NODEV, _DETACH = 2, 4, 2
# Directories that are renamed are copied, files that change mode too: the upper layer alone tells what changed.
_OPTIONS = "volatile,redirect_dir=off,metacopy=off,index=off,xino=off"
_LOCK, _MERGED, _UPPER, _WORK = "lock", "merged", "upper", "work"


class Layer:
    """One view of a directory. A context manager: at its end the view and all that was done in it are gone.

    A view is another one after `roll_back`: what still has a file or directory of the old one open keeps that, so
    no program may be running in it then.

    Args:
        lower: The directory; a link is refused.
        place: A directory of ours on the file system that shall hold the changes, for all views. Default:
            `views_dir`, where the next run or `ringfence gc` sweeps; elsewhere the caller does.

    Raises:
        UsageError: One of the two lies in the other.
        InfrastructureFault: The kernel does not let us; see `why_no_layers`.
    """

    def __init__(self, lower: Path, place: Path | None = None) -> None:
        place = place or views_dir()
        one, other = lower.resolve(), place.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise UsageError(
                f"{str(lower)!r} and {str(place)!r}, where changes are kept, lie in one another; choose another place"
            )
        self._lower = lower
        self._home = make_private_dir(place) / secrets.token_hex(8)
        self._home.mkdir(mode=0o711)
        # Held until the process ends, however it does: `sweep` leaves alone what is locked.
        self._lock = os.open(self._home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self.merged.mkdir()
            self._mount()
        except OSError as exc:
            self.drop()
            raise _fault(f"cannot lay a view over {str(lower)!r}", exc) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    @property
    def merged(self) -> Path:
        """The view: what is shown to a sandbox in the place of the directory."""
        return self._home / _MERGED

    def changes(self) -> LayerChanges:
        """What differs between the view and the directory.

        Raises:
            InfrastructureFault: One of them cannot be read.
        """
        try:
            return changes_between(self._lower, self._home / _UPPER)
        except OSError as exc:
            raise _fault(f"cannot read the changes to {str(self._lower)!r}", exc) from exc

    def roll_back(self) -> None:
        """Make the view what the directory is. What was done in it is removed by `tidy` or `drop`.

        Raises:
            InfrastructureFault: The kernel refused.
        """
        try:
            _unmount(self.merged)
            old = self._home / f"old-{secrets.token_hex(4)}"
            old.mkdir()
            for name in (_UPPER, _WORK):
                (self._home / name).rename(old / name)
            self._mount()
        except OSError as exc:
            raise _fault(f"cannot roll back the view of {str(self._lower)!r}", exc) from exc

    def tidy(self) -> None:
        """Remove what earlier states held. Takes as long as they have files.

        Raises:
            InfrastructureFault: Something cannot be removed.
        """
        try:
            for old in self._home.glob("old-*"):
                remove_tree(old)
        except OSError as exc:
            raise _fault(f"cannot remove what was left in {str(self._home)!r}", exc) from exc

    def drop(self) -> None:
        """Remove the view and all that was done in it; a second call does nothing.

        Raises:
            InfrastructureFault: Something cannot be removed; `sweep` tries again.
        """
        if self._lock < 0:
            return
        try:
            _remove(self._home)
        except OSError as exc:
            raise _fault(f"cannot remove the view {str(self._home)!r}", exc) from exc
        finally:
            os.close(self._lock)
            self._lock = -1

    def _mount(self) -> None:
        """Mount by descriptors: no name of a directory is read as options, nor followed if it is a link."""
        upper, work = self._home / _UPPER, self._home / _WORK
        upper.mkdir()
        work.mkdir()
        descriptors = []
        try:
            for path in (self._lower, upper, work):
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptors.append(os.open(path, flags))
            status = os.fstat(descriptors[0])
            # The top of the view is that of the upper layer.
            os.chown(upper, status.st_uid, status.st_gid)
            upper.chmod(status.st_mode & 0o7777)
            lower_fd, upper_fd, work_fd = (f"/proc/self/fd/{fd}" for fd in descriptors)
            _mount_overlay(
                self.merged, f"lowerdir={lower_fd},upperdir={upper_fd},workdir={work_fd},{_OPTIONS}"
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def views_dir() -> Path:
    """Where views are kept unless another place is named."""
    return state_dir() / "views"


def why_no_layers(place: Path | None = None) -> str | None:
    """Why there can be no views with their changes in `place`; None if there can."""
    place = place or views_dir()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ringfence-") as probe,
            Layer(Path(probe), place / "probes"),
        ):
            return None
    except (InfrastructureFault, OSError) as exc:
        return str(exc)


def sweep(place: Path | None = None) -> int:
    """Remove the views of processes that ended without dropping them; return how many.

    Each run and `ringfence gc` begin with this, for the default place.

    Raises:
        InfrastructureFault: Something cannot be removed.
    """
    removed = 0
    for lock in (place or views_dir()).glob(f"*/{_LOCK}"):
        with suppress(FileNotFoundError, BlockingIOError), lock.open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                _remove(lock.parent)
            except OSError as exc:
                raise _fault(f"cannot remove the view {str(lock.parent)!r}", exc) from exc
            removed += 1
    return removed


def _remove(home: Path) -> None:
    merged = home / _MERGED
    if merged.is_dir():
        _unmount(merged)
        merged.rmdir()  # fails on anything that is mounted there still
    # The lock goes last: until then a sweep finds what is left.
    for part in sorted(home.iterdir(), key=lambda path: path.name == _LOCK):
        remove_tree(part) if part.is_dir() else part.unlink()
    home.rmdir()


def _mount_overlay(target: Path, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (b"ringfence", os.fsencode(target), b"overlay", _NOSUID | _NODEV, options.encode())
    if libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(arguments[3]), arguments[4]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def _unmount(target: Path) -> None:
    """Unmount what is mounted at `target`, if anything is; who has files open in there keeps them."""
    libc = ctypes.CDLL(None, use_errno=True)
    while target.is_mount():
        if libc.umount2(os.fsencode(target), _DETACH) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(target))


def _fault(what: str, error: OSError) -> InfrastructureFault:
    return InfrastructureFault(
        f"{what}: {error.strerror or error}; views need root with the right to mount, and a place on a plain file"
        " system (ext4, xfs, btrfs, tmpfs); checkpoints work without"
    )
