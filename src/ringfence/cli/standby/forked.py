"""A fork of the standby: it hears what a command's process wants, becomes what that would be, and does it.

Nothing that a command sends is ever in the standby's own memory, so no fork can have it from another command.
"""

import _socket
import marshal
import os
import select
import signal
import stat
import sys
import time
from typing import Any

from ringfence.cli.standby.asking import COMMAND, GO, HELLO, READY, STATUS
from ringfence.cli.standby.confinement import confinement, differing, status_of, take_limits
from ringfence.cli.standby.following import ENDED
from ringfence.cli.standby.interpreter import decisive
from ringfence.cli.standby.life import die_with
from ringfence.cli.standby.place import peer
from ringfence.cli.standby.streams import open_streams
from ringfence.frozen import frozen

PATIENCE_S = 5.0
_REQUEST_BYTES = 16 * 1024**2
_MOST_DESCRIPTORS = 250
_PASSED_ALWAYS = 3
"""Descriptors that come with each request: the request, the life, the directory."""


class Refused(Exception):
    """The command is to start by itself. Never leaves this process but as a line."""


class Gone(Exception):
    """Whoever called has gone without a word. Never leaves this process."""


@frozen
class Loaded:
    """What the standby is, and every fork of it."""

    interpreter: tuple[object, ...]
    environment: dict[bytes, bytes]
    read: frozenset[bytes]
    """The variables that were asked for while it was loaded."""


@frozen
class Request:
    """What a command's process wants."""

    fields: dict[str, Any]
    life: int
    directory: int
    wanted: dict[int, int]
    """For each number the descriptor that is to be there."""


def greet(connection: _socket.socket) -> tuple[int, int]:
    """Say who this is, to whoever asks; its process's id, and a descriptor of it.

    Raises:
        Gone: It has gone.
    """
    connection.settimeout(PATIENCE_S)
    pid, _ = peer(connection)
    try:
        asking = os.pidfd_open(pid)
    except ProcessLookupError as exc:
        raise Gone from exc
    # From now on the kernel says of each message who has sent it.
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    me = os.pidfd_open(os.getpid())
    sent = me.to_bytes(4, sys.byteorder)
    try:
        connection.sendmsg([HELLO], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)])
    except BrokenPipeError as exc:
        raise Gone from exc
    os.close(me)
    return pid, asking


def hear(connection: _socket.socket, pid: int) -> list[int] | None:
    """The descriptors by which it says what it wants; None: it wants to know how the standby is.

    Raises:
        Gone: It has gone.
        Refused: It is not what it was when it called, or wants what no command can want.
    """
    space = _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS) + _socket.CMSG_SPACE(12)
    word, told, flags, _ = connection.recvmsg(1, space, _socket.MSG_CMSG_CLOEXEC)
    received: list[int] = []
    sender = 0
    for level, kind, data in told:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            received += [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]
        elif (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_CREDENTIALS):
            sender = int.from_bytes(data[:4], sys.byteorder)
    if not word:
        raise Gone
    if sender != pid or flags & _socket.MSG_CTRUNC:
        raise Refused("somebody else went on with its connection")
    if word == STATUS:
        return None
    if word != COMMAND or len(received) < _PASSED_ALWAYS:
        raise Refused("it does not speak as a command does")
    return received


def see_alike(pid: int) -> None:
    """See that nothing confines it that does not confine this process.

    Raises:
        Refused: Something does.
    """
    why = differing(confinement("self"), confinement(pid))
    if why is not None:
        raise Refused(why)


def understood(received: list[int]) -> Request:
    """What these descriptors say. Only of who is confined alike: `marshal` does not withstand an enemy.

    Raises:
        Refused: It is more than a command says.
    """
    request, life, directory, *descriptors = received
    with os.fdopen(request, "rb") as file:
        told = os.fstat(request)
        # Of anything but a file the end might never come.
        if not stat.S_ISREG(told.st_mode) or told.st_size > _REQUEST_BYTES:
            raise Refused(f"its arguments and variables are not a file of at most {_REQUEST_BYTES} bytes")
        file.seek(0)
        fields = marshal.loads(file.read(_REQUEST_BYTES))  # noqa: S302 -- our own user's, who may as much as we
    return Request(fields, life, directory, dict(zip(fields["numbers"], descriptors, strict=True)))


def compare(request: Request, loaded: Loaded) -> None:
    """See that this process has been started as the command's own was.

    Raises:
        Refused: It cannot.
    """
    if request.fields["interpreter"] != loaded.interpreter:
        raise Refused("its Python is not the standby's, or was started otherwise")
    theirs, ours = (decisive(each, loaded.read) for each in (request.fields["env"], loaded.environment))
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            raise Refused(f"the variable {os.fsdecode(name)} is not the standby's")


def become(request: Request, pid: int) -> None:
    """Be what the command's own process would be. Its descriptors are in their places already.

    Raises:
        OSError, ValueError: A limit cannot be taken over.
    """
    told = status_of(pid)
    fields = request.fields
    os.fchdir(request.directory)
    os.close(request.directory)
    os.umask(int(told["Umask"], 8))
    take_limits(pid)
    _take_signals(int(told["SigIgn"], 16), int(told["SigBlk"], 16))
    os.environb.clear()
    os.environb.update(fields["env"])
    time.tzset()
    sys.argv = list(fields["argv"])
    sys.path[:] = fields["path"]
    open_streams(fields["streams"])


def _take_signals(ignored: int, blocked: int) -> None:
    """As a Python that has just been started treats them."""
    for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
        is_ignored = ignored >> (number - 1) & 1
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if is_ignored else usual)
    signal.pthread_sigmask(
        signal.SIG_SETMASK, [number for number in signal.valid_signals() if blocked >> (number - 1) & 1]
    )


def is_wanted(connection: _socket.socket, life: int, asking: int) -> bool:
    """Say that all is ready; whether it shall begin."""
    ended = select.poll()
    ended.register(asking, select.POLLIN)
    # The process that was looked at is the one that has called: its number was its own all the time.
    if ended.poll(0) or not die_with(life):
        return False
    connection.sendall(READY)
    return connection.recv(1) == GO


def tell_end(connection: _socket.socket, code: int) -> None:
    """Say how this process ends, as the last thing it does."""
    try:
        connection.sendall(ENDED + bytes([code & 0xFF]))
    except OSError:
        return
