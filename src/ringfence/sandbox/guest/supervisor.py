"""One process between the guest and each command, the owner of everything the command leaves behind.

It is a subreaper: double-forked, re-sessioned, env-cleared stragglers become its children, so that the guest can
find and kill them. It tells the guest over a socket: `P<pid>`, then `X<status> <seconds>` or
`E<stage> <errno> <message>`; the end of the socket says that the whole tree is gone.
"""

from __future__ import annotations

import errno
import os
import time

from . import files, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket  # noqa: N812
    from typing import Any, NoReturn

    Spec = dict[str, Any]

_RLIMIT_FSIZE, _RLIMIT_CORE = 1, 4
_DEFAULT_SIGNALS = (1, 2, 3, 13, 15, 17, 18, 20, 21, 22, 25)  # what we, or Python, set to ignored


def run(spec: Spec, descriptors: list[int], status: Socket) -> NoReturn:
    """Run the command or file operation of `spec` and wait for its tree. Never returns.

    Args:
        spec: {key: value, or list for argv and env}.
        descriptors: (stdin, stdout, stderr) for the command.
        status: Socket to the guest.
    """
    code, stage = 1, "start"
    try:
        kernel.become_subreaper()
        # The guest must outlive its commands when memory runs out: the kernel kills the highest score first.
        kernel.write_text("/proc/self/oom_score_adj", "500")
        _limit(spec)
        stage = "cwd"
        os.chdir(spec["cwd"])
        stage = "spawn"
        if spec.get("op"):
            _operate(spec, descriptors, status)
        else:
            _command(spec, descriptors, status)
        code = 0
    except OSError as error:
        _tell(status, "E%s %d %s" % (stage, error.errno or 0, error.strerror or error))
    except BaseException as error:  # noqa: BLE001 -- the boundary of a process: told, not hidden
        _tell(status, "E%s 0 %s: %s" % (stage, type(error).__name__, error))
    finally:
        os._exit(code)


def _tell(status: Socket, text: str) -> None:
    try:
        status.send(text.encode("utf-8", "surrogateescape"))
    except OSError:
        os._exit(1)  # the guest is gone: nobody to tell, and the sandbox is being torn down


def _limit(spec: Spec) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if spec.get("disk"):
        size = int(spec["disk"])
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if hard == resource.RLIM_INFINITY or size < hard:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _operate(spec: Spec, descriptors: list[int], status: Socket) -> None:
    import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum

    def stop(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    _signal.signal(15, stop)  # lets `write` remove its temporary file
    _signal.signal(25, _signal.SIG_IGN)  # SIGXFSZ: the write fails with EFBIG instead
    _tell(status, "P%d" % os.getpid())
    started = time.monotonic()
    files.OPERATIONS[spec["op"]](spec, descriptors[0], descriptors[1])
    for descriptor in descriptors:
        os.close(descriptor)
    _tell(status, "X0 %f" % (time.monotonic() - started))


def _command(spec: Spec, descriptors: list[int], status: Socket) -> None:
    argv = spec["argv"]
    environment = dict(item.split("=", 1) for item in spec["env"])
    started = time.monotonic()
    pid = _spawn(argv, environment, descriptors, spec.get("tty"))
    for descriptor in descriptors:
        os.close(descriptor)
    _tell(status, "P%d" % pid)
    while True:
        try:
            ended, code = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if ended == pid:
            _tell(status, "X%d %f" % (code, time.monotonic() - started))


def _spawn(argv: list[str], environment: dict[str, str], descriptors: list[int], tty: str | None) -> int:
    if tty:
        # Opened as the first terminal of a new session, so that it becomes the controlling one.
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, tty, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, descriptor, place) for place, descriptor in enumerate(descriptors)]
    last = OSError(errno.ENOENT, "command not found")
    for path in _candidates(argv[0], environment.get("PATH") or os.defpath):
        words = argv
        while True:
            try:
                return os.posix_spawn(
                    path, words, environment, file_actions=actions, setsid=True, setsigdef=_DEFAULT_SIGNALS
                )
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


def _candidates(program: str, search: str) -> list[str]:
    if "/" in program:
        return [program]
    found = [os.path.join(directory or ".", program) for directory in search.split(":")]
    return [path for path in found if os.path.exists(path)]
