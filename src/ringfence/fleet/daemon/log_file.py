"""The log of a daemon in the background, and its bound.

The daemon, its workers and what they start write to it by descriptors that they inherited, the interpreter's last words
among them. So the file stays the same one: what is in it is copied beside it, and it is cut to nothing. Who appends goes
on at its new beginning. A line of a worker that comes just between the two is lost.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.fleet.log import Log

LIMIT_BYTES = 8 * 1024**2
"""Of the log; as much of the older one."""
_LOOK_S = 5.0
_STDERR = 2


def log_file(state: Path) -> Path:
    """Where a state directory's daemon in the background writes; its directory is there."""
    return make_private_dir(state / "fleet") / "daemon.log"


def older_file(log: Path) -> Path:
    """Where what was in a log before is kept."""
    return log.with_name(f"{log.name}.1")


def open_log(log: Path) -> int:
    """A descriptor that appends to a log, which need not be there. Only its owner can read it.

    Raises:
        OSError: It cannot be opened.
    """
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


async def keep_short(
    file: Path,
    log: Log,
    *,
    descriptor: int = _STDERR,
    limit_bytes: int = LIMIT_BYTES,
    look_s: float = _LOOK_S,
) -> None:
    """See every few seconds that a log does not grow for ever, until cancelled.

    Args:
        file: The log.
        log: Reports that the older lines could not be kept; they are gone then, as a bound must hold.
        descriptor: What this process writes by. Nothing is done unless that appends to the log.
        limit_bytes: A larger file is moved to `older_file`, in place of what was there.
        look_s: Seconds between two looks.
    """
    if not _appends_to(descriptor, file):
        return
    while True:
        if os.fstat(descriptor).st_size > limit_bytes:
            problem = await anyio.to_thread.run_sync(_move, descriptor, older_file(file))
            if problem is not None:
                log(f"the older lines of the log are lost: {problem}", event="log.lost")
        await anyio.sleep(look_s)


def _appends_to(descriptor: int, log: Path) -> bool:
    try:
        is_it = os.path.samestat(os.fstat(descriptor), log.lstat())
    except OSError:
        return False
    return is_it and bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


def _move(descriptor: int, older: Path) -> str | None:
    """Move what is in a log beside it; says what went wrong. In either case it is empty then."""
    problem = None
    fresh = older.with_name(f"{older.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        # Not by its name: somebody may have removed that, and the log grows all the same.
        with open(f"/proc/self/fd/{descriptor}", "rb") as source, os.fdopen(open_log(fresh), "wb") as target:  # noqa: PTH123
            shutil.copyfileobj(source, target, 1024 * 1024)
        fresh.replace(older)
    except OSError as exc:
        problem = exc.strerror or str(exc)
        with suppress(OSError):
            fresh.unlink()
    os.ftruncate(descriptor, 0)
    return problem
