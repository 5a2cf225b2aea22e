"""Where a holder is found: a directory of its own in the state directory, alive as long as its lock is held.

The kernel releases the lock when the holder dies, however it dies; what the directory says then is history.
"""

import errno
import fcntl
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, UsageError, next_step
from ringfence.filesystem import short_path
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.removal import remove_tree

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_GONE = ".gone-"
_PATIENCE_S = 2.0
_REMOVAL_S = 600.0
_STEP_S = 0.005


@frozen
class HolderPlace:
    """The directory of one holder."""

    directory: Path

    @property
    def name(self) -> str:
        """What the sandbox is called."""
        return self.directory.name

    @property
    def lock_file(self) -> Path:
        """Locked by the holder for as long as it lives."""
        return self.directory / "lock"

    @property
    def state_file(self) -> Path:
        """What the holder says of itself."""
        return self.directory / "state.json"

    @property
    def log_file(self) -> Path:
        """What the holder's interpreter has to complain of."""
        return self.directory / "log"

    def is_alive(self) -> bool:
        """Whether a living process holds it.

        Raises:
            InfrastructureFault: The lock cannot be asked.
        """
        try:
            fd = os.open(self.lock_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise _fault("open", self.lock_file, exc) from exc
        try:
            return not try_lock(fd, fcntl.LOCK_SH, what="a sandbox's place")
        finally:
            os.close(fd)

    def listen(self) -> socket.socket:
        """The holder's own socket, for its user alone; one that a dead holder left is replaced.

        Raises:
            InfrastructureFault: It cannot be made.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with short_path(self.directory / "socket") as path:
                with suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108 -- a path of a descriptor
                listening.bind(path)
                os.chmod(path, 0o600)  # noqa: PTH101 -- as above
            listening.listen(64)
        except OSError as exc:
            listening.close()
            raise _fault("listen on a socket in", self.directory, exc) from exc
        return listening

    def connect(self) -> socket.socket:
        """A connection to the holder, non-blocking.

        Raises:
            OSError: Nobody listens, or not any more.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_PATIENCE_S)
            with short_path(self.directory / "socket") as path:
                connection.connect(path)
            connection.setblocking(False)
        except BaseException:
            connection.close()
            raise
        return connection

    def stop_listening(self) -> None:
        """Nobody shall attach any more."""
        with suppress(OSError):
            (self.directory / "socket").unlink()

    def remove(self) -> None:
        """Remove the directory. The name is free at once, and nobody sees half of it.

        Raises:
            InfrastructureFault: It cannot be removed.
        """
        gone = self.directory.with_name(f"{_GONE}{secrets.token_hex(6)}")
        try:
            self.directory.rename(gone)
            remove_tree(gone)
        except FileNotFoundError:
            return  # somebody else was quicker
        except OSError as exc:
            raise _fault("remove", self.directory, exc) from exc


def standing_dir() -> Path:
    """Where the standing sandboxes of this state directory are."""
    return state_dir() / "standing"


def standing_place(name: str) -> HolderPlace:
    """The place of the standing sandbox `name`, whether there is one or not.

    Raises:
        UsageError: It is no name.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a sandbox; take up to 63 of a-z, 0-9, '.', '_', '-', "
            "beginning with a letter or digit"
        )
    return HolderPlace(standing_dir() / name)


def places_in(folder: Path) -> list[HolderPlace]:
    """All places in a folder, by name; dead ones too."""
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [HolderPlace(path) for path in sorted(found)]


def remove_halves(folder: Path) -> None:
    """Remove what is left of places whose remover died. Those that somebody removes just now are let be."""
    oldest_kept = time.time() - _REMOVAL_S
    for path in folder.glob(f"{_GONE}*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest_kept:
                remove_tree(path)


def claim(place: HolderPlace) -> int:
    """Make the place and lock it; of several who try at once, one wins. What a dead holder left is removed.

    Returns:
        The descriptor of the lock, for the holder to inherit.

    Raises:
        UsageError: A living holder has it.
        InfrastructureFault: It cannot be made.
    """
    try:
        make_private_dir(place.directory.parent)
    except OSError as exc:
        raise _fault("make", place.directory.parent, exc) from exc
    with _section(place.directory.parent / ".lock"):
        if place.directory.is_dir():
            if place.is_alive():
                raise UsageError(
                    f"there is a sandbox {place.name!r} already; take another name, or "
                    f"`ringfence sandbox rm {place.name}` first"
                )
            place.remove()
        try:
            place.directory.mkdir(mode=0o700)
            return _locked(place.lock_file)
        except OSError as exc:
            raise _fault("make", place.directory, exc) from exc


def _locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _PATIENCE_S
    while not try_lock(
        fd, fcntl.LOCK_EX, what="a sandbox's place"
    ):  # somebody's `is_alive` holds it for microseconds
        if time.monotonic() >= deadline:
            os.close(fd)
            raise OSError(errno.EBUSY, "somebody else holds it")
        time.sleep(_STEP_S)
    return fd


@contextmanager
def _section(path: Path) -> Iterator[None]:
    """One process at a time looks for a free name and takes it."""
    try:
        fd = _locked(path)
    except OSError as exc:
        raise _fault("lock", path, exc) from exc
    try:
        yield
    finally:
        os.close(fd)


def _fault(verb: str, path: Path, error: OSError) -> InfrastructureFault:
    return InfrastructureFault(
        f"could not {verb} {str(path)!r}: {error.strerror}; {next_step(error, is_state=True)}"
    )
