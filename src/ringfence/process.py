"""The one module that starts host processes: own group, bounded output, a deadline, always reaped."""

import functools
import os
import resource
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL as DEVNULL  # the two are given to start_process
from subprocess import PIPE as PIPE

import anyio
from anyio.abc import ByteReceiveStream, Process

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen

_GRACE_S = 2.0


@frozen
class ProcessResult:
    """What a host process came to; output beyond the limit is dropped."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether it exited with 0 in time."""
        return self.exit_code == 0 and not self.timed_out


@frozen
class ProcessLimits:
    """What one host program may use; the kernel holds it, and all that it starts, to that."""

    memory_bytes: int
    """Of its own memory (`RLIMIT_DATA`): files that it maps to read them do not count."""
    cpu_s: int
    """Processor time; an end for a program whose starter was killed."""
    file_bytes: int
    """Of each file that it writes."""


_SYSTEM_PATH = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/run/current-system/sw/bin",  # NixOS
)


def host_program(name: str) -> str:
    """Return the path of a program of the system. PATH is not used, because an activated venv puts the workspace on it.

    Raises:
        InfrastructureFault: No such program belongs to root and can be written by root alone.
    """
    for folder in map(Path, _SYSTEM_PATH):
        found = folder / name
        try:
            status, above = found.stat(), folder.stat()
        except OSError:
            continue
        is_roots = status.st_uid == 0 == above.st_uid and not (status.st_mode | above.st_mode) & stat.S_IWOTH
        if is_roots and stat.S_ISREG(status.st_mode) and os.access(found, os.X_OK):
            return str(found)
    raise InfrastructureFault(
        f"{name!r} is not among the system's programs ({', '.join(_SYSTEM_PATH)}); install it"
    )


def _resolved(argv: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    first, *rest = (os.fspath(word) for word in argv)
    return (first if "/" in first else host_program(first), *rest)


@functools.cache
def _setpriv() -> str | None:
    """What takes another identity and becomes a program; None where the system has none (BusyBox's cannot do that)."""
    try:
        program = host_program("setpriv")
    except InfrastructureFault:
        return None
    return program if Path(program).resolve().name == "setpriv" else None


def _as_user(words: tuple[str, ...], user: int, group: int | None) -> tuple[str, ...] | None:
    """Return the command that runs as another user; None if the machine has no `setpriv`."""
    program = _setpriv()
    if program is None:
        return None
    its_group = () if group is None else (f"--regid={group}",)
    return (program, f"--reuid={user}", *its_group, "--clear-groups", "--", *words)


_UNDER_LIMITS = 'ulimit -c 0 && ulimit -t "$1" && ulimit -d "$2" && ulimit -f "$3" && shift 3 && exec "$@"'
"""A shell sets them and becomes the program: Python would have to copy this process to set them in a child."""
_DATA_UNIT_BYTES, _FILE_UNIT_BYTES = 1024, 512
"""Units of `ulimit -d` and, by POSIX, of `ulimit -f`."""


def _under_limits(words: tuple[str, ...], limits: ProcessLimits) -> tuple[str, ...]:
    """The command that takes limits upon itself; where ours are lower already, those."""
    cpu_s = _at_most(resource.RLIMIT_CPU, limits.cpu_s)
    memory = _at_most(resource.RLIMIT_DATA, limits.memory_bytes) // _DATA_UNIT_BYTES
    file = _at_most(resource.RLIMIT_FSIZE, limits.file_bytes) // _FILE_UNIT_BYTES
    return (host_program("sh"), "-c", _UNDER_LIMITS, "sh", str(cpu_s), str(memory), str(file), *words)


def _at_most(kind: int, wanted: int) -> int:
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


async def run_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    output_limit_bytes: int = 64 * 1024**2,
    stop_at_limit: bool = False,
    user: int | None = None,
    group: int | None = None,
    pass_fds: Sequence[int] = (),
    limits: ProcessLimits | None = None,
) -> ProcessResult:
    """Run a host program to its end.

    Args:
        argv: Program and arguments; never a shell string.
        stdin: Given to it; then its stdin is closed.
        cwd: Working directory.
        env: Its whole environment; None inherits ours.
        timeout_s: Then its group is terminated, and killed 2 s later.
        output_limit_bytes: Of stdout and of stderr each.
        stop_at_limit: End it when it has printed more, instead of dropping the rest.
        user: Host uid to run as (needs root); supplementary groups are dropped with it.
        group: Host gid to run as.
        pass_fds: Descriptors it inherits.
        limits: What it may use; None is what we may.

    Raises:
        InfrastructureFault: The program is absent or cannot be started.
    """
    words = _resolved(argv)
    process = await start_process(
        words if limits is None else _under_limits(words, limits),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env=env,
        user=user,
        group=group,
        pass_fds=pass_fds,
    )
    stdout, stderr = _Capture(output_limit_bytes), _Capture(output_limit_bytes)
    is_over = False
    try:
        with anyio.move_on_after(timeout_s) as clock:
            if stop_at_limit:
                stdout.on_limit = stderr.on_limit = clock.cancel
            await _communicate(process, stdin, stdout, stderr)
            await process.wait()
            is_over = True
    finally:
        with anyio.CancelScope(shield=True):
            await kill_group(process)
        if not is_over:
            # The process may have ended; processes that it left behind hold its pipes, so their group still exists.
            _signal_group(process.pid, signal.SIGKILL)
    return ProcessResult(
        argv=words,
        exit_code=process.returncode if process.returncode is not None else -1,
        stdout=bytes(stdout.data),
        stderr=bytes(stderr.data),
        timed_out=not is_over and not (stop_at_limit and (stdout.truncated or stderr.truncated)),
        truncated=stdout.truncated or stderr.truncated,
    )


async def start_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    stdin: int,
    stdout: int,
    stderr: int | None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user: int | None = None,
    group: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start a host program on the given descriptors, in a session of its own; the caller waits for it.

    Args:
        argv: Program and arguments.
        stdin: Descriptor it reads from, or `PIPE`.
        stdout: Descriptor it writes to, or `PIPE`.
        stderr: Descriptor for its errors, or `PIPE`; None shares ours.
        cwd: Working directory.
        env: Its whole environment; None inherits ours.
        user: Host uid to run as (needs root); supplementary groups are dropped with it.
        group: Host gid to run as.
        pass_fds: Descriptors it inherits.

    Raises:
        InfrastructureFault: The program is absent or cannot be started.
    """
    words = _resolved(argv)
    taking_it = None if user is None else _as_user(words, user, group)
    if taking_it is not None:
        # Python copies this process, with all the pages of its memory, for a child that it is to give another user.
        words, user, group = taking_it, None, None
    try:
        # A start that is cancelled halfway would leave a process without a handle.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                words,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
                user=user,
                group=group,
                extra_groups=None if user is None else (),
            )
    except OSError as exc:
        raise InfrastructureFault(f"could not start {words[0]!r}: {exc.strerror or exc}") from exc
    return process


async def kill_group(process: Process, *, grace_s: float = _GRACE_S) -> None:
    """End the process and its group: terminate, wait, kill; then reap it and close its pipes."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with anyio.move_on_after(grace_s):
            await process.wait()
        _signal_group(process.pid, signal.SIGKILL)  # also those of the group that outlived it
        await process.wait()
    await process.aclose()


def start_time(pid: int) -> str | None:
    """Start time of a process in ticks since boot (proc_pid_stat(5)); None if it is gone, or dead and not reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


class _Capture:
    def __init__(self, limit_bytes: int) -> None:
        self.data = bytearray()
        self.truncated = False
        self.on_limit: Callable[[], None] | None = None
        self._limit = limit_bytes

    async def drain(self, stream: ByteReceiveStream | None) -> None:
        if stream is None:
            return
        async for chunk in stream:
            room = self._limit - len(self.data)
            self.data += chunk[:room]
            self.truncated = self.truncated or len(chunk) > room
            if self.truncated and self.on_limit is not None:
                self.on_limit()


async def _communicate(process: Process, stdin: bytes, stdout: _Capture, stderr: _Capture) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stdout.drain, process.stdout)
        tasks.start_soon(stderr.drain, process.stderr)
        if process.stdin is not None:
            try:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await process.stdin.send(stdin)
            finally:
                with anyio.CancelScope(shield=True):
                    await process.stdin.aclose()
