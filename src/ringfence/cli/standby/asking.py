"""A command's own process: it asks the standby for a fork that does its work, or says that there is none.

It sends what it has, its secrets among that, only to a process of its own user, in a directory of its own. Until it has
said "go" nothing is done; from then on it does not fall back. So a command is never done twice.
"""

import _socket
import marshal
import os
import sys
import time

from ringfence.cli.standby.following import Followed, follow
from ringfence.cli.standby.interpreter import interpreter, own_path
from ringfence.cli.standby.place import connect, standby_dir

HELLO, STATUS, COMMAND, READY, GO = b"h", b"s", b"c", b"r", b"g"
_PATIENCE_S = 2.0
_MOST_DESCRIPTORS = 200
_ANSWER_BYTES = 4096


def done_by_standby() -> int | None:
    """Have the standby's fork do this process's command; its exit code, or None if this process is to do it itself."""
    directory = standby_dir()
    if os.environ.get("RINGFENCE_STANDBY") == "0" or not os.access(directory, os.X_OK) or _wants_terminal():
        return None
    numbers, until = _descriptors(), time.monotonic() + _PATIENCE_S
    if numbers is None or (connection := connect(directory, _PATIENCE_S)) is None:
        return None
    life, mine = os.pipe2(os.O_CLOEXEC)
    try:
        process = _agreed(connection, life, numbers, until)
    except OSError:
        process = None
    finally:
        os.close(life)
    if process is None:
        os.close(mine)
        connection.close()
        return None
    # Whatever ends this process closes `mine`, and with it the fork.
    return follow(Followed(process, connection, GO))


def _wants_terminal() -> bool:
    """Whether it may read a terminal: a fork has none of its own, so that nothing would stop it in the background."""
    words = sys.argv[1:]
    reads = words[0] == "exec" or any(
        word == "-" or word.endswith("=-") or word.startswith(("--goal", "-f-")) for word in words
    )
    return reads and sys.stdin is not None and sys.stdin.isatty()


def _descriptors() -> list[int] | None:
    """Those that a program started by this one would have; None: too many."""
    try:
        opened = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    except OSError:
        return None
    numbers = [number for number in sorted(opened) if _is_inheritable(number)]
    return numbers if len(numbers) <= _MOST_DESCRIPTORS else None


def _is_inheritable(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # the one that the directory was read by
        return False


def _agreed(connection: _socket.socket, life: int, numbers: list[int], until: float) -> int | None:
    """Send the request; a descriptor of the fork that is ready to do it.

    Raises:
        OSError: It is not ready at that time: the time is for all of it, not for each answer.
    """
    _wait_until(until, connection)
    process = take_hello(connection)
    if process is None:
        return None
    request = os.memfd_create("request", os.MFD_CLOEXEC)
    here = -1
    try:
        _write(request, _request(numbers))
        here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        sent = b"".join(each.to_bytes(4, sys.byteorder) for each in (request, life, here, *numbers))
        connection.sendmsg([COMMAND], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)])
    finally:
        os.close(request)
        if here >= 0:
            os.close(here)
    _wait_until(until, connection)
    if connection.recv(1) == READY:
        connection.settimeout(_PATIENCE_S)
        return process
    os.close(process)
    return None


def _wait_until(until: float, connection: _socket.socket) -> None:
    """For the next answer, or look only whether it is there already."""
    connection.settimeout(max(0.0, until - time.monotonic()))


def take_hello(connection: _socket.socket) -> int | None:
    """What the standby's fork says first: a descriptor of itself (pidfd_open(2))."""
    said, told, _, _ = connection.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
    if said != HELLO or len(told) != 1 or told[0][:2] != (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
        return None
    return int.from_bytes(told[0][2][:4], sys.byteorder)


def _request(numbers: list[int]) -> bytes:
    streams = tuple(
        None if stream is None else (stream.encoding, stream.errors, getattr(stream, "write_through", False))
        for stream in (sys.stdin, sys.stdout, sys.stderr)
    )
    return marshal.dumps(
        {
            "argv": sys.argv,
            "env": dict(os.environb),
            "interpreter": interpreter(own_path()),
            "path": sys.path,
            "streams": streams,
            "numbers": numbers,
        }
    )


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def status(directory: str) -> bytes | None:
    """What the standby says of itself, as JSON; None: nobody listens.

    Raises:
        OSError: It does not answer.
    """
    connection = connect(directory, _PATIENCE_S)
    if connection is None:
        return None
    try:
        process = take_hello(connection)
        if process is not None:
            os.close(process)
        connection.sendall(STATUS)
        answer = b""
        while (more := connection.recv(_ANSWER_BYTES)) and len(answer) < _ANSWER_BYTES:
            answer += more
        return answer
    finally:
        connection.close()
