"""Runs the shim: a process between the guest and a command, which owns everything that the command leaves behind.

It is a subreaper: processes that forked twice, started a new session or cleared their environment become its
children, so that the guest can find and kill them. A shim is reused once nothing is left of its last command, as
forking the guest costs more than the rest of a short command.

It reports on a socket, one message each:

    started PID
    exited STATUS SECONDS           `ready` follows in the same message if nothing is left: each message wakes the guest
    failed STAGE ERRNO MESSAGE
    ready                           the whole tree is gone and the next command may be sent
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum
import errno
import posix as os
import time

from . import files, kernel, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket  # noqa: N812
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn, Optional

    Spec = dict[str, Any]
    Work = tuple[Spec, list[int]]

_FORK_PATIENCE_S = 0.5
_DEFAULT_PATH = "/bin:/usr/bin"
_MOST_OF_NAME = 500
"""Longest name of a program in the message that it cannot be started, as the host limits the length of records."""
_DEFAULT_SIGNALS = (1, 2, 3, 13, 15, 17, 18, 20, 21, 22, 25)  # those that we or Python ignore


def serve(next_work: Callable[[], Optional[Work]], status: Socket) -> NoReturn:
    """Run commands and file operations one after the other until the socket ends.

    Args:
        next_work: Returns the next spec and its descriptors, or None at the end.
        status: The socket to the guest.
    """
    try:
        if not kernel.become_subreaper():
            raise OSError(errno.ENOSYS, "this kernel has no child subreapers")
        while True:
            work = next_work()
            if work is None:
                os._exit(0)
            _report(status, _run(work[0], work[1], status) + "ready")
    except BaseException as error:  # noqa: BLE001 -- the boundary of a process
        _report(status, "failed start 0 %s: %s" % (type(error).__name__, error))
        os._exit(1)


def _run(spec: Spec, descriptors: list[int], status: Socket) -> str:
    """Run until nothing is left of the command; return the report that remains to be sent."""
    stage = "start"
    opened = list(descriptors)
    try:
        _set_limits(spec)
        stage = "cwd"
        os.chdir(spec["cwd"])
        stage = "spawn"
        return (_operation if spec.get("op") else _command)(spec, opened, status)
    except OSError as error:
        _report(status, "failed %s %d %s" % (stage, error.errno or 0, error.strerror or error))
        return ""
    finally:
        _close(opened)
        os.chdir("/")  # an idle shim keeps no directory busy


def _report(status: Socket, text: str) -> None:
    try:
        status.send(text.encode("utf-8", "surrogateescape"))
    except OSError:
        os._exit(1)  # the guest is gone, and the sandbox with it


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _set_limits(spec: Spec) -> None:
    import resource

    # Not 0: a program that core_pattern names would still get a core, and it runs on the host. At 1 the kernel
    # makes no core at all (fs/coredump.c, the guard against a crashing core handler).
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    if spec.get("nproc"):
        resource.setrlimit(resource.RLIMIT_NPROC, (int(spec["nproc"]), int(spec["nproc"])))
    if spec.get("disk"):
        size = int(spec["disk"])
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if hard == resource.RLIM_INFINITY or size < hard:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _operation(spec: Spec, descriptors: list[int], status: Socket) -> str:
    def abort(_number: int, _frame: object) -> NoReturn:
        # Not by an exception, which is lost if it is raised within a callback, as they occur in imports.
        files.remove_temporary()
        _report(status, "failed operation %d interrupted" % errno.EINTR)
        os._exit(1)

    _signal.signal(25, _signal.SIG_IGN)  # SIGXFSZ: the write fails with EFBIG instead
    _signal.signal(processes.SIGTERM, abort)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (processes.SIGTERM,))
    started = time.monotonic()
    try:
        files.OPERATIONS[spec["op"]](spec, descriptors[0], descriptors[1])
    finally:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (processes.SIGTERM,))
    _close(descriptors)
    return "exited 0 %f " % (time.monotonic() - started)


def _command(spec: Spec, descriptors: list[int], status: Socket) -> str:
    environment = dict(item.split("=", 1) for item in spec["env"])
    started = time.monotonic()
    pid = _spawn(spec["argv"], environment, _file_actions(descriptors, spec.get("tty")))
    _close(descriptors)
    _report(status, "started %d" % pid)
    end = ""
    while True:
        try:
            ended, code = os.waitpid(-1, os.WNOHANG if end else 0)
        except ChildProcessError:
            return end
        if ended == pid:
            end = "exited %d %f " % (code, time.monotonic() - started)
        elif ended == 0:  # processes are left, and may run for long
            _report(status, end)
            end = ""


def _file_actions(descriptors: list[int], tty: Optional[str]) -> list[Any]:
    if tty is None:
        return [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(descriptors)]
    # The first terminal that a new session opens becomes its controlling terminal.
    terminal = (os.POSIX_SPAWN_OPEN, 0, tty, os.O_RDWR, 0)
    return [terminal, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]


def _spawn(argv: list[str], environment: dict[str, str], actions: list[Any]) -> int:
    """Start a program, searching PATH as execvp does."""
    last = OSError(errno.ENOENT, "command not found")
    for path in _candidates(argv[0], environment.get("PATH") or _DEFAULT_PATH):
        try:
            return _spawn_file(path, argv, environment, actions)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                last = error
    raise OSError(last.errno, "%s: %s" % (argv[0][:_MOST_OF_NAME], last.strerror))


def _spawn_file(path: str, argv: list[str], environment: dict[str, str], actions: list[Any]) -> int:
    deadline = time.monotonic() + _FORK_PATIENCE_S
    while True:
        try:
            signals: dict[str, Any] = {"setsigmask": (), "setsigdef": _DEFAULT_SIGNALS}
            return os.posix_spawn(path, argv, environment, file_actions=actions, setsid=True, **signals)
        except BlockingIOError:
            # The limit on processes is reached: those of a command that was just killed may not be reaped yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        except OSError as error:
            if error.errno != errno.ENOEXEC or path == "/bin/sh":
                raise
            # A script whose first line names no interpreter: the shell runs it.
            path, argv = "/bin/sh", ["sh", path, *argv[1:]]


def _candidates(program: str, search_path: str) -> Iterable[str]:
    if "/" in program:
        return [program]
    paths = ((directory or ".").rstrip("/") + "/" + program for directory in search_path.split(":"))
    return (path for path in paths if os.access(path, os.F_OK))
