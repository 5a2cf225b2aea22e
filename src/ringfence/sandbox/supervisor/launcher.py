"""Starts a supervisor: a process in a new session that inherits only its order and its lock.

It forks at once and its parent exits, so that it is not the creator's child. Its stdin holds the order; its stdout is a
socket for the answer. If the creator's end of the socket closes before the answer, the sandbox is no longer wanted.
"""

import json
import os
import pickle
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream

from ringfence.errors import ExitCode, InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.process import start_process
from ringfence.sandbox.supervisor.connection import LOST
from ringfence.sandbox.supervisor.directory import SandboxDirectory

_PROGRAM = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.umask(0o077)\n"
    "from importlib import import_module\n"
    "import_module(sys.argv[1]).main()\n"
)
_ANSWER_BYTES = 64 * 1024
_LOG_BYTES = 64 * 1024
_MESSAGE_CHARS = 8192


@frozen
class StartFailure:
    """Why a supervisor did not come up."""

    message: str
    exit_code: int


async def start_supervisor(
    module: str,
    directory: SandboxDirectory,
    lock: int,
    order: Mapping[str, Any],
    *,
    secrets: Sequence[str] = (),
    wait: bool = True,
) -> StartFailure | None:
    """Start the supervisor of a sandbox; it outlives this process.

    Args:
        module: A module of ringfence whose `main` calls `receive_order`.
        directory: The sandbox's directory, claimed by this process.
        lock: Descriptor of the claim; the supervisor inherits it, and it is closed here.
        order: The arguments of its `main`; anything that can be pickled.
        secrets: Values that are left out of its environment.
        wait: Whether to wait for its answer; if it does not answer, the result is None.

    Raises:
        InfrastructureFault: The process cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        with ours:
            with theirs, os.fdopen(os.memfd_create("order"), "wb") as file:
                pickle.dump(order, file)
                file.seek(0)
                await _spawn(module, directory, lock, file.fileno(), theirs.fileno(), secrets)
            return await _receive_answer(ours, directory) if wait else None
    finally:
        os.close(lock)


async def _spawn(
    module: str, directory: SandboxDirectory, lock: int, stdin: int, stdout: int, secrets: Sequence[str]
) -> None:
    try:
        log = os.open(directory.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(directory.log_file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    try:
        process = await start_process(
            # -P: modules must not be imported from the current directory, which may be a workspace.
            [sys.executable, "-P", "-c", _PROGRAM, module, str(directory.path), str(lock)],
            stdin=stdin,
            stdout=stdout,
            stderr=log,
            cwd=directory.path,
            env={name: value for name, value in os.environ.items() if value not in secrets},
            pass_fds=(lock,),
        )
    finally:
        os.close(log)
    await process.wait()


async def _receive_answer(ours: socket.socket, directory: SandboxDirectory) -> StartFailure | None:
    answer = bytearray()
    ours.setblocking(False)
    async with await SocketStream.from_socket(ours.dup()) as stream:
        with suppress(*LOST):
            while len(answer) < _ANSWER_BYTES:
                answer += await stream.receive()
    try:
        failure = json.loads(answer)
        return None if failure is None else StartFailure(**failure)
    except (ValueError, TypeError):
        return StartFailure(f"its supervisor died: {_last_line(directory)}", ExitCode.SANDBOX_START)


def _last_line(directory: SandboxDirectory) -> str:
    try:
        lines = directory.log_file.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it left no message"


class Order:
    """In a supervisor: the creator's order, and the socket for the answer. Created once, before anything else."""

    def __init__(self) -> None:
        _program, _module, path, lock = sys.argv
        os.set_inheritable(int(lock), False)  # held until this process ends
        self.directory = SandboxDirectory(Path(path))
        with os.fdopen(os.dup(0), "rb") as file:
            self.fields: Mapping[str, Any] = pickle.load(file)  # noqa: S301 -- a file without a name, from our creator
        self._creator = socket.socket(fileno=os.dup(1))
        self.is_answered = False
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)

    async def wait_for_creators_end(self) -> None:
        """Return when the creator has ended, or has its answer."""
        self._creator.setblocking(False)
        await anyio.wait_readable(self._creator)

    def report_ready(self) -> None:
        """Answer that clients can attach.

        Raises:
            OSError: The creator has ended, and no other process knows of the sandbox.
        """
        self._answer(None)

    def report_failure(self, message: str, exit_code: int) -> None:
        """Answer that there will be no sandbox, unless an answer was sent already."""
        if not self.is_answered:
            with suppress(OSError):
                self._answer(StartFailure(message[:_MESSAGE_CHARS], int(exit_code)))

    def _answer(self, failure: StartFailure | None) -> None:
        self._creator.setblocking(True)
        self._creator.sendall(json.dumps(failure and vars(failure)).encode())
        self.is_answered = True
        self._creator.shutdown(socket.SHUT_RDWR)
