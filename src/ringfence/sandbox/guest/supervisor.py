"""One process between the guest and each command, the owner of everything the command leaves behind.

It is a subreaper: double-forked, re-sessioned, env-cleared stragglers become its children, so that the guest can
find and kill them. It tells the guest over a socket: `P<pid>`, then `X<status> <seconds>` or
`E<stage> <errno> <message>`; then `R` once the whole tree is gone and it can take the next, which is one message
with `X` where the command left nothing: each wakes the guest. Before all that `O` where the kernel makes no subreapers.
"""

from __future__ import annotations

import errno
import posix as os
import time

from . import files, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket  # noqa: N812
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn, Optional

    Spec = dict[str, Any]
    Take = Callable[[], Optional[tuple[Spec, list[int]]]]

_PROCESS_PATIENCE_S = 0.5
_DEFAULT_PATH = "/bin:/usr/bin"
_DEFAULT_SIGNALS = (1, 2, 3, 13, 15, 17, 18, 20, 21, 22, 25)  # what we, or Python, set to ignored


def serve(take: Take, status: Socket) -> NoReturn:
    """Run one command or file operation after another, each with its whole tree; end with the socket.

    A supervisor is used again once nothing is left of its last command: a fork of the guest costs more than
    the rest of a short command.

    Args:
        take: Gives the next (spec, descriptors), or None at the end of the socket.
        status: Socket to the guest.
    """
    if not kernel.become_subreaper():
        _tell(status, "O")
    code = 1
    try:
        while True:
            work = take()
            if work is None:
                code = 0
                break
            _tell(status, _run(work[0], work[1], status) + "R")
    except BaseException as error:  # noqa: BLE001 -- the boundary of a process: told, not hidden
        _tell(status, "Estart 0 %s: %s" % (type(error).__name__, error))
    finally:
        os._exit(code)


def _run(spec: Spec, descriptors: list[int], status: Socket) -> str:
    """Run it until nothing is left of it; what is still to be told of its end."""
    stage = "start"
    left = list(descriptors)
    try:
        _limit(spec)
        stage = "cwd"
        os.chdir(spec["cwd"])
        stage = "spawn"
        return _operate(spec, left) if spec.get("op") else _command(spec, left, status)
    except OSError as error:
        _tell(status, "E%s %d %s" % (stage, error.errno or 0, error.strerror or error))
        return ""
    finally:
        for descriptor in left:
            os.close(descriptor)
        os.chdir("/")  # an idle supervisor keeps no directory busy


def _tell(status: Socket, text: str) -> None:
    try:
        status.send(text.encode("utf-8", "surrogateescape"))
    except OSError:
        os._exit(1)  # the guest is gone: nobody to tell, and the sandbox is being torn down


def _limit(spec: Spec) -> None:
    import resource

    # Not 0: a core_pattern that names a program gets a core all the same, and that program runs on the host.
    # At 1 the kernel makes none at all (fs/coredump.c, the guard against a crashing core handler).
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    if spec.get("nproc"):
        resource.setrlimit(resource.RLIMIT_NPROC, (int(spec["nproc"]), int(spec["nproc"])))
    if spec.get("disk"):
        size = int(spec["disk"])
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if hard == resource.RLIM_INFINITY or size < hard:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _operate(spec: Spec, descriptors: list[int]) -> str:
    import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum

    def stop(_number: int, _frame: object) -> NoReturn:
        _signal.signal(15, _signal.SIG_IGN)  # a second one would interrupt the cleaning up
        raise KeyboardInterrupt

    _signal.signal(15, stop)  # lets `write` remove its temporary file
    _signal.signal(25, _signal.SIG_IGN)  # SIGXFSZ: the write fails with EFBIG instead
    started = time.monotonic()
    files.OPERATIONS[spec["op"]](spec, descriptors[0], descriptors[1])
    _signal.signal(15, _signal.SIG_IGN)
    while descriptors:
        os.close(descriptors.pop())
    return "X0 %f " % (time.monotonic() - started)


def _command(spec: Spec, descriptors: list[int], status: Socket) -> str:
    argv = spec["argv"]
    environment = dict(item.split("=", 1) for item in spec["env"])
    started = time.monotonic()
    pid = _spawn(argv, environment, descriptors, spec.get("tty"))
    while descriptors:
        os.close(descriptors.pop())
    _tell(status, "P%d" % pid)
    end = ""
    while True:
        try:
            ended, code = os.waitpid(-1, os.WNOHANG if end else 0)
        except ChildProcessError:
            return end
        if ended == pid:
            end = "X%d %f " % (code, time.monotonic() - started)
        elif ended == 0:  # somebody is left, and may stay long
            _tell(status, end)
            end = ""


def _spawn(argv: list[str], environment: dict[str, str], descriptors: list[int], tty: str | None) -> int:
    if tty:
        # Opened as the first terminal of a new session, so that it becomes the controlling one.
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, tty, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, descriptor, place) for place, descriptor in enumerate(descriptors)]
    last = OSError(errno.ENOENT, "command not found")
    until = time.monotonic() + _PROCESS_PATIENCE_S
    for path in _candidates(argv[0], environment.get("PATH") or _DEFAULT_PATH):
        words = argv
        while True:
            try:
                return os.posix_spawn(
                    path, words, environment, file_actions=actions, setsid=True, setsigdef=_DEFAULT_SIGNALS
                )
            except BlockingIOError:
                # No more processes: those of a command that was just killed may not be reaped yet.
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            except OSError as error:
                if error.errno == errno.ENOEXEC and words is argv:
                    # A script whose first line names no interpreter: the shell runs it, as execvp does.
                    words = ["sh", path, *argv[1:]]
                    path = "/bin/sh"
                    continue
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    last = error
                break
    raise OSError(last.errno, "%s: %s" % (argv[0], last.strerror))


def _candidates(program: str, search: str) -> Iterable[str]:
    if "/" in program:
        return [program]
    found = ((directory or ".").rstrip("/") + "/" + program for directory in search.split(":"))
    return (path for path in found if _exists(path))


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True
