"""Programs of Python that need not start Python: each is a fork of a process that has the imports behind it.

A command of a loop computes for seconds until it has imported the model's SDK and the engine, and for less than that
afterwards. A fork is a process like any other, with its own id, directory, variables and streams, that can be killed
and waited for; only `/proc/PID/cmdline` and `environ` tell of the process it comes from. What starts by Python itself
is in tests/cli and in the examples of the docs.
"""

import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, AnyStr
from weakref import WeakSet, finalize

_STATUS_BYTES = 4
_STARTING = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_LOCK = threading.Lock()
_ROOT = Path(__file__).parents[1]


@cache
def _forking() -> socket.socket:
    """Start what forks; it ends when this process does."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "RINGFENCE_"))}
    atexit.register(mine.close)
    with its:
        subprocess.Popen(
            [sys.executable, "-m", "tests.forking", str(its.fileno())], cwd=_ROOT, env=kept, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, pass_fds=[its.fileno()], start_new_session=True,
        ).returncode = 0  # nobody waits for it  # fmt: skip
    return mine


class Forked(subprocess.Popen[AnyStr]):
    """`subprocess.Popen([sys.executable, *words], ...)`, forked."""

    def _execute_child(self, *given: Any) -> None:
        asked = _STARTING.bind(self, *given).arguments
        streams: list[int] = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        streams = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        request = {
            "words": asked["args"][1:],
            "cwd": str(asked["cwd"] or Path.cwd()),
            "env": dict(os.environ if asked["env"] is None else asked["env"]),
            "has_session": asked["start_new_session"],
        }
        self._status: int
        self._status, status = os.pipe()
        finalize(self, os.close, self._status)
        with _LOCK:
            channel = _forking()
            socket.send_fds(channel, [json.dumps(request).encode()], [*streams, status])
            self.pid = int(channel.recv(64))
            _STARTED.add(self)
        os.close(status)
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in ends))  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._looked(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if (code := self._looked(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _looked(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            with _LOCK:  # of several threads one reads it
                if self.returncode is None:
                    status = os.read(self._status, _STATUS_BYTES)
                    self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, "little"))
        return self.returncode


_STARTED = WeakSet[Forked[Any]]()


def run(words: list[str], *, timeout: float, **options: Any) -> "subprocess.CompletedProcess[str]":
    """`subprocess.run(words, capture_output=True, text=True, check=False, ...)`, forked."""
    with Forked[str](words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, errors)


def still_running() -> Iterator[str]:
    """Those that have not ended."""
    with _LOCK:
        started = list(_STARTED)
    for process in started:
        if process.poll() is None:
            yield f"process {process.pid}: {process.args!r}"
