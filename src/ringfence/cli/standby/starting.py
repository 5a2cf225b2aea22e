"""Starting and ending a standby: a process of its own session that belongs to nobody, and has no secrets."""

import fcntl
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from ringfence.cli.standby.asking import status
from ringfence.cli.standby.main import READY
from ringfence.cli.standby.place import LOCK, LOG, connect, hold, peer
from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, PolicyRefused, next_step
from ringfence.flock import try_lock
from ringfence.process import DEVNULL, interpreter_flags, start_process

_PROGRAM = (
    "import sys\n"
    "if not sys.flags.safe_path: del sys.path[0]\n"  # else modules would come from the current directory
    "import os\n"
    "if sys.argv[-1] == '0':\n"
    " if os.fork(): os._exit(0)\n"
    " os.umask(0o077)\n"
    "from ringfence.cli.standby.main import main\n"
    "main()\n"
)
_START_S = 60.0
_STOP_S = 5.0
_PATIENCE_S = 1.0
_LOG_BYTES = 64 * 1024
_NAMES = frozenset(
    {
        "HOME",
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "USER",
        "LOGNAME",
        "VIRTUAL_ENV",
        "RINGFENCE_STATE_DIR",
    }
)
_PREFIXES = ("LC_", "XDG_", "PYTHON", "LD_", "OPENSSL_", "SSL_", "GLIBC_", "MALLOC_")


def directory() -> Path:
    """Where the standby of this state directory is.

    Raises:
        PolicyRefused: The state directory is not ours alone.
    """
    return state_dir() / "standby"


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """What a standby has of the variables of whoever starts it: none that could be a secret."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and not (name == "LC_CTYPE" and _is_pythons_own())
    }


def _is_pythons_own() -> bool:
    """Whether Python has set LC_CTYPE: where there is no language it does (PEP 538), and so it will in the standby.

    With it, Python would be started otherwise there than in a command.
    """
    asked = "utf8" in sys._xoptions or "PYTHONUTF8" in os.environ
    return bool(sys.flags.utf8_mode) and not asked


def start(idle_s: float) -> tuple[int, bool]:
    """Have a standby; its process's id, and whether it is a new one.

    Args:
        idle_s: For how long it waits for a command.

    Raises:
        RingfenceError: There is none, and none can be had.
    """
    place = directory()
    try:
        make_private_dir(place)
        held = _held(place)
        try:
            lock = _opened(held, LOCK)
        except OSError:
            os.close(held)
            raise
    except OSError as exc:
        raise InfrastructureFault(
            f"could not use {str(place)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    try:
        if try_lock(lock, fcntl.LOCK_EX, what="the standby's place"):
            anyio.run(_start, place, (held, lock), idle_s)
            return _of(place), True
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _of(place), False
    finally:
        os.close(held)
        os.close(lock)
    raise InfrastructureFault("another standby has just ended; try again")


def _held(place: Path) -> int:
    try:
        return hold(str(place))
    except PermissionError as exc:
        if exc.errno is not None:  # the kernel says so
            raise
        raise PolicyRefused(str(exc), rule="state-directory") from exc


def _opened(held: int, name: str, more: int = 0) -> int:
    """A file of the directory that was looked at, not of what may be at its path now."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | more
    return os.open(name, flags, 0o600, dir_fd=held)


def _of(place: Path) -> int:
    """The process that listens there."""
    connection = connect(str(place), _PATIENCE_S)
    if connection is None:
        raise InfrastructureFault("another standby is starting, or ending, just now; try again")
    try:
        return peer(connection)[0]
    finally:
        connection.close()


async def _start(place: Path, held: tuple[int, int], idle_s: float) -> None:
    """Start it and wait until it listens."""
    folder, lock = held
    heard, telling = os.pipe2(os.O_CLOEXEC)
    log = _opened(folder, LOG, os.O_TRUNC)
    words = [str(place), str(lock), str(telling), str(idle_s), "0"]
    try:
        process = await start_process(
            [sys.executable, *interpreter_flags(), "-c", _PROGRAM, *words],
            stdin=DEVNULL, stdout=log, stderr=log, cwd=Path("/"), env=kept(os.environ), pass_fds=(lock, telling),
        )  # fmt: skip
        os.close(telling)
        telling = -1
        await process.wait()
        with anyio.move_on_after(_START_S):
            await anyio.wait_readable(heard)
            if os.read(heard, 64) == READY:
                return
        lines = os.pread(log, _LOG_BYTES, 0).decode("utf-8", "replace").strip().splitlines()
    finally:
        for each in (heard, log, *([telling] if telling >= 0 else ())):
            os.close(each)
    raise InfrastructureFault(f"the standby did not come up: {lines[-1] if lines else 'it left no word'}")


def stop(*, now: bool) -> int | None:
    """Have it end; its process's id, or None if there is none. What runs goes on to its end.

    Args:
        now: Interrupt what runs, too, and wait for it.

    Raises:
        InfrastructureFault: It does not end.
    """
    connection = connect(str(directory()), _PATIENCE_S)
    if connection is None:
        return None
    pid = peer(connection)[0]
    process = os.pidfd_open(pid)
    connection.close()
    try:
        signal.pidfd_send_signal(process, signal.SIGINT if now else signal.SIGTERM)
        signal.pidfd_send_signal(process, signal.SIGCONT)  # one that stands still, too
        _wait(process, now=now)
    finally:
        os.close(process)
    return pid


def _wait(process: int, *, now: bool) -> None:
    """Until it has let go of its place; with `now`, until it is gone."""
    if now:
        select.select([process], [], [])
        return
    with (directory() / LOCK).open("rb") as file:
        anyio.run(_freed, file.fileno())


async def _freed(lock: int) -> None:
    with anyio.move_on_after(_STOP_S):
        while not try_lock(lock, fcntl.LOCK_SH, what="the standby's place"):  # noqa: ASYNC110 -- locks tell nobody
            await anyio.sleep(0.01)
        return
    raise InfrastructureFault("the standby does not end; `ringfence standby status` tells its process")


def document() -> dict[str, Any] | None:
    """What it says of itself; None: there is none.

    Raises:
        InfrastructureFault: It does not answer.
    """
    try:
        answer = status(str(directory()))
        told: dict[str, Any] | None = None if answer is None else json.loads(answer)
    except (OSError, ValueError) as exc:
        raise InfrastructureFault(
            "the standby does not answer, and commands start by themselves; `ringfence standby stop` ends it"
        ) from exc
    return told
