"""A Python that has imported what commands of ringfence need, and forks for each: see `tests.forked`.

`python -m tests.forking FD`: the descriptor is a socket that brings a request per message, with the four descriptors
that the new process has as its streams and its end is told by, and takes the new process's id.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from ringfence import cli

_IMPORTED = (
    "anyio._backends._asyncio",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "dbos._sys_db_postgres",
    "dbos._sys_db_sqlite",
    "ringfence.cli.loop.inspection",
    "ringfence.cli.loop.start",
    "ringfence.cli.loop.view",
    "ringfence.cli.app",
    "ringfence.cli.run.task",
    "ringfence.cli.run.execution",
    "ringfence.engine.client",
    "ringfence.loop.draft",
    "ringfence.loop.worker",
    "ringfence.loop.start",
    "ringfence.model.scripted.upstream",
    "ringfence.runtime.api",
    "ringfence.sandbox.bubblewrap.backend",
    "ringfence.tool.toolset",
    "rich.console",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.protocols.http.httptools_impl",
)
"""What takes long, each with all that it imports."""
_REQUEST_BYTES = 1 << 17
_STATUS_BYTES = 4


class _Forks:
    """The processes that were asked for, each with the descriptor that its end is told by."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._telling: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> list[str] | None:
        """Fork as asked, until nobody asks any more; in each fork, the words it is to do."""
        asking = self._channel.fileno()
        while True:
            ready, _, _ = select.select([asking, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if asking in ready:
                message, descriptors, _, _ = socket.recv_fds(self._channel, _REQUEST_BYTES, 4)
                if not message:
                    return None
                request = json.loads(message)
                pid = os.fork()
                if pid == 0:
                    self._become(request, descriptors)
                    return list(request["words"])
                *streams, self._telling[pid] = descriptors
                for descriptor in streams:
                    os.close(descriptor)
                self._channel.send(str(pid).encode())

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                descriptor = self._telling.pop(ended[0])
                with suppress(BrokenPipeError):  # nobody waits for it any more
                    os.write(descriptor, ended[1].to_bytes(_STATUS_BYTES, "little"))
                os.close(descriptor)

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Be a process of its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if request["has_session"]:
            os.setsid()
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        for descriptor in (*descriptors, *self._telling.values(), self._woken, self._wake):
            os.close(descriptor)
        self._channel.close()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()


def _do(words: list[str]) -> None:
    """What `python WORDS...` does."""
    gc.enable()
    match words:
        case ["-c", program, *rest]:
            sys.argv = ["-c", *rest]
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *rest]:
            sys.argv = [file, *rest]
            runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    gc.disable()
    _main = cli.main
    for _name in _IMPORTED:
        importlib.import_module(_name)
    cli.main = _main  # its module of that name took its place
    gc.freeze()
    if (_words := _Forks(socket.socket(fileno=int(sys.argv[1]))).serve()) is not None:
        _do(_words)
