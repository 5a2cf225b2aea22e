"""Opens the log of a daemon in the background, and limits its size.

The daemon, its workers and their child processes write to the log by inherited descriptors; the interpreter's last
messages arrive that way, too. So the file itself is kept: its content is copied to a second file, and it is truncated.
Writers append at its new beginning. A line that a worker writes between the copy and the truncation is lost.
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
"""Size limit of the log; the older file may be as large."""
_CHECK_S = 5.0
_STDERR = 2


def log_file(state: Path) -> Path:
    """Return the log file of a state directory's background daemon, and create its directory."""
    return make_private_dir(state / "fleet") / "daemon.log"


def older_file(log: Path) -> Path:
    """The file that keeps the older lines of a log."""
    return log.with_name(f"{log.name}.1")


def open_log(log: Path) -> int:
    """Return a descriptor that appends to a log, which is created if necessary. Only its owner can read it.

    Raises:
        OSError: The log cannot be opened.
    """
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


async def truncate_log(
    file: Path,
    log: Log,
    *,
    descriptor: int = _STDERR,
    limit_bytes: int = LIMIT_BYTES,
    check_s: float = _CHECK_S,
) -> None:
    """Check the size of a log every few seconds and truncate it when it is too large, until cancelled.

    Args:
        file: The log.
        log: Reports that the older lines could not be kept. They are lost then, because the limit must hold.
        descriptor: The descriptor this process writes to. Nothing is done unless it appends to the log.
        limit_bytes: The content of a larger file is moved to `older_file`, which is replaced.
        check_s: Seconds between two checks.
    """
    if not _appends_to(descriptor, file):
        return
    while True:
        if os.fstat(descriptor).st_size > limit_bytes:
            problem = await anyio.to_thread.run_sync(_move, descriptor, older_file(file))
            if problem is not None:
                log(f"the older lines of the log are lost: {problem}", event="log.lost")
        await anyio.sleep(check_s)


def _appends_to(descriptor: int, log: Path) -> bool:
    try:
        is_log = os.path.samestat(os.fstat(descriptor), log.lstat())
    except OSError:
        return False
    return is_log and bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


def _move(descriptor: int, older: Path) -> str | None:
    """Move the content of a log to its older file. The log is empty afterwards even if that failed; returns why."""
    problem = None
    fresh = older.with_name(f"{older.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        # Not by its name: the file may have been unlinked, and grows all the same.
        with open(f"/proc/self/fd/{descriptor}", "rb") as source, os.fdopen(open_log(fresh), "wb") as target:  # noqa: PTH123
            shutil.copyfileobj(source, target, 1024 * 1024)
        fresh.replace(older)
    except OSError as exc:
        problem = exc.strerror or str(exc)
        with suppress(OSError):
            fresh.unlink()
    os.ftruncate(descriptor, 0)
    return problem
