"""Starting a holder: a process of its own session, with nothing of ours but its order and its place's lock.

The process forks at once and its parent ends, so that it belongs to nobody. Order and answer go over a socket;
the creator's end of it closing before the answer means that nobody wants the sandbox any more.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from ringfence.errors import ExitCode, InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.process import start_process
from ringfence.sandbox.supervisor.place import HolderPlace
from ringfence.sandbox.supervisor.state import dump

_PROGRAM = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.umask(0o077)\n"
    "from importlib import import_module\n"
    "import_module(sys.argv[1]).main()\n"
)
_LENGTH_DIGITS = 10
_ANSWER_BYTES = 64 * 1024
_CHUNK = 65536


@frozen
class NotStarted:
    """A holder that did not come up."""

    message: str
    exit_code: int


async def start_holder(
    module: str, place: HolderPlace, lock: int, order: Mapping[str, Any], *, secrets: Sequence[str] = ()
) -> NotStarted | None:
    """Start `module`'s `main` as a holder and wait until it answers; None if it is ready.

    Args:
        module: Of ringfence; its `main` calls `take_order`.
        place: The holder's own, claimed by us.
        lock: Descriptor of the claim; the holder inherits it, and we let go of ours.
        order: What it shall hold; plain data.
        secrets: Values that do not go along in its environment.

    Raises:
        InfrastructureFault: The process cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        with ours:
            try:
                await _spawn(module, place, lock, theirs.fileno(), secrets)
            finally:
                theirs.close()
            return await _converse(ours, {**order, "lock": lock, "place": str(place.directory)}, place)
    finally:
        os.close(lock)


async def send_off(
    module: str, place: HolderPlace, lock: int, order: Mapping[str, Any], *, secrets: Sequence[str] = ()
) -> None:
    """Start `module`'s `main` as a holder that answers to nobody; it outlives us. Arguments as `start_holder`.

    Raises:
        InfrastructureFault: The process cannot be started.
    """
    written = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        with os.fdopen(written, "wb", closefd=False) as file:
            file.write(dump({**order, "lock": lock, "place": str(place.directory)}))
        os.lseek(written, 0, os.SEEK_SET)
        await _spawn(module, place, lock, written, secrets)
    finally:
        os.close(written)
        os.close(lock)


async def _spawn(module: str, place: HolderPlace, lock: int, stdin: int, secrets: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if value not in secrets}
    try:
        log = os.open(place.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(place.log_file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    try:
        process = await start_process(
            # -P: the current directory, a workspace perhaps, must not be where modules come from.
            [sys.executable, "-P", "-c", _PROGRAM, module],
            stdin=stdin,
            stdout=log,
            stderr=log,
            cwd=place.directory,
            env=environment,
            pass_fds=(lock,),
        )
    finally:
        os.close(log)
    await process.wait()


async def _converse(ours: socket.socket, order: Mapping[str, Any], place: HolderPlace) -> NotStarted | None:
    ours.setblocking(False)
    data = dump(order)
    stream = await anyio.abc.SocketStream.from_socket(ours.dup())
    async with stream:
        with suppress(anyio.BrokenResourceError):  # it died before; its last words are in the log
            await stream.send(b"%010d" % len(data) + data)
        answer = bytearray()
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while len(answer) < _ANSWER_BYTES:
                answer += await stream.receive(_CHUNK)
    return _parse_answer(bytes(answer), place)


def _parse_answer(answer: bytes, place: HolderPlace) -> NotStarted | None:
    try:
        fields = json.loads(answer)
        if fields["state"] == "ready":
            return None
        return NotStarted(str(fields["message"]), int(fields["exit_code"]))
    except (ValueError, KeyError, TypeError):
        return NotStarted(f"its holder died: {_last_line(place)}", ExitCode.SANDBOX_START)


def _last_line(place: HolderPlace) -> str:
    try:
        lines = place.log_file.read_bytes()[-_CHUNK:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it left no word"


class Order:
    """In a holder: what its creator wants, and the way to answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.fields: dict[str, Any] = json.loads(self._read(int(self._read(_LENGTH_DIGITS))))
        self.place = HolderPlace(Path(self.fields["place"]))
        self.is_answered = False
        # Held until this process ends.
        os.set_inheritable(int(self.fields["lock"]), False)

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._connection.recv(count - len(data))
            if not chunk:
                raise SystemExit(1)  # the creator died in mid-sentence
            data += chunk
        return bytes(data)

    async def creator_gone(self) -> None:
        """Return when the creator has gone without having got an answer."""
        self._connection.setblocking(False)
        await anyio.wait_readable(self._connection)

    async def say_ready(self) -> None:
        """Answer that clients can attach.

        Raises:
            BrokenPipeError: The creator has gone: nobody knows of the sandbox.
        """
        self._answer({"state": "ready"})

    def say_failed(self, message: str, exit_code: int) -> None:
        """Answer that there will be no sandbox, unless it was answered already."""
        if not self.is_answered:
            with suppress(OSError):
                self._answer({"state": "failed", "message": message[:8192], "exit_code": int(exit_code)})

    def _answer(self, fields: Mapping[str, Any]) -> None:
        self._connection.setblocking(True)
        self._connection.sendall(dump(fields))
        self.is_answered = True
        self._connection.shutdown(socket.SHUT_RDWR)


def read_order() -> dict[str, Any]:
    """In a holder that answers to nobody, first of all: take the order from stdin, which is then empty."""
    with os.fdopen(os.dup(0), "rb") as file:
        fields: dict[str, Any] = json.loads(file.read())
    os.set_inheritable(int(fields["lock"]), False)
    _empty_stdin()
    return fields


def take_order() -> Order:
    """In a holder, first of all: take the order from stdin, which is then empty."""
    connection = socket.socket(fileno=os.dup(0))
    _empty_stdin()
    return Order(connection)


def _empty_stdin() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
