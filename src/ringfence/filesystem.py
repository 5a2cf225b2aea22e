"""What file systems allow: databases on local ones only, sockets however deep, and files that are replaced at once."""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringfence.errors import InfrastructureFault

_REMOTE = re.compile(
    r"(nfs|cifs|smb|9p|afs|ceph|gfs|glusterfs|lustre|beegfs|gpfs|ocfs|orangefs|vboxsf|prl_fs|fuse(\.|$))"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_remote(kind: str) -> bool:
    """Whether a file system of this kind may be of another machine, as `/proc/self/mountinfo` names it."""
    return _REMOTE.match(kind) is not None


def kind_of(path: Path, mountinfo: str) -> str:
    """The kind of file system that a path lies on; empty where none is known.

    Args:
        path: Absolute, without links.
        mountinfo: As in proc_pid_mountinfo(5); of two mounts on one place the later counts.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        first, _, second = line.partition(" - ")
        if len(first.split(" ")) < 5 or not second:
            continue
        place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), first.split(" ")[4]).rstrip("/")
        if f"{path}/".startswith(f"{place}/") and len(place) >= best:
            best, kind = len(place), second.split(" ")[0]
    return kind


def remote_kind(file: Path) -> str | None:
    """The kind of file system of a file, if that may be on another machine; else None."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    kind = kind_of(file.parent.resolve(), mounts)
    return kind if is_remote(kind) else None


def refuse_remote(file: Path) -> None:
    """See that a database file lies on a file system of this machine.

    Raises:
        InfrastructureFault: It does not.
    """
    kind = remote_kind(file)
    if kind is not None:
        raise InfrastructureFault(
            f"the database {str(file)!r} lies on a file system of kind {kind!r}, where locks cannot be relied on; "
            "put the state directory on a local disk, or use Postgres"
        )


def replace_file(
    path: Path, content: bytes, *, mode: int = 0o600, is_synced: bool = False, is_only_writer: bool = False
) -> None:
    """Write a file in one step: readers find all of it, or what was there before. A link at `path` is replaced.

    Args:
        path: In a directory that exists; several processes may write it at the same time, the last one wins.
        content: Of the file.
        mode: Of a new file; the umask applies.
        is_synced: Whether the content is on the disk before the file is replaced, so that a power failure leaves it
            whole.
        is_only_writer: Whether the caller holds a lock on the file. Then the file written first has one name, and one
            that a killed writer left is replaced by the next.

    Raises:
        OSError: It could not be written, and is as it was; nothing is left beside it.
    """
    if is_only_writer:
        partial = path.with_name(f".{path.name}.new")
        partial.unlink(missing_ok=True)
    else:
        partial = path.with_name(f".{secrets.token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, mode), "wb") as file:
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise


def keep_database_private(file: Path) -> None:
    """Create the file of an SQLite database for its owner only, or take others' rights off one that is the caller's.

    What goes wrong is left to SQLite to find and tell. SQLite gives the files beside it the same mode.
    """
    with suppress(OSError):
        # Never opened once it is there: closing it would release the locks of this process.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return
    for path in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o077:
                path.chmod(0o600)


@contextmanager
def short_path(socket: Path) -> Iterator[str]:
    """A path to a Unix socket that fits into `sun_path` (108 bytes), wherever its directory is.

    Source: unix(7), which limits the path, and proc(5), by which a descriptor's path leads to its directory.

    Raises:
        OSError: Its directory is no directory, or cannot be opened.
    """
    directory = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{socket.name}"
    finally:
        os.close(directory)
