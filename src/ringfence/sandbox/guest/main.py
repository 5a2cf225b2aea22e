"""Runs the guest, the sandbox's first process: one thread, one event loop, a channel per command and connection."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum
import fcntl
import gc
import posix as os
import sys
import time

from . import frames, kernel, processes
from .connection import Connections
from .executor import Executor
from .stream import EventLoop, Stream
from .watchdog import Watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CHECK_INTERVAL_S = 0.25


class Guest:
    """Serves the host's frames until the stream ends."""

    def __init__(self, stream_in: int, stream_out: int, *, is_masked: bool, is_filtered: bool) -> None:
        self._is_masked = is_masked
        self._is_filtered = is_filtered
        self._watchdog = Watchdog()
        self._next_check = 0.0
        self._silence_s = 0.0
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._loop = EventLoop()
        self._loop.set_reader(self._wake, self._on_child)
        self._stream = Stream(self._loop, stream_in, stream_out, self._on_frame, self._on_room, self.leave)
        self._executor = Executor(self._loop, self._stream)
        self._connections = Connections(self._loop, self._stream)

    def run(self) -> NoReturn:
        """Serve until the host closes the stream."""
        self._greet()
        while True:
            if not self._executor.needs_idle_shim:
                self._loop.run_once()
            elif not self._loop.run_once(waits=False):
                self._executor.fork_idle_shim()

    def _greet(self) -> None:
        undumpable = kernel.become_undumpable()
        kernel.become_subreaper()
        fields = [
            ("version", frames.VERSION),
            ("python", "%d.%d.%d" % sys.version_info[:3]),
            ("pid", os.getpid()),
            ("uid", os.getuid()),
            ("undumpable", int(undumpable)),
            ("masked", int(self._is_masked)),
            ("filtered", int(self._is_filtered)),
        ]
        self._stream.send(frames.HELLO, 0, frames.encode_record(fields))

    def _configure(self, pairs: list[tuple[str, str]]) -> None:
        self._watchdog.configure(pairs)
        for key, value in pairs:
            if key == "ttl_s":
                self._loop.set_timer(self._expire, time.monotonic() + float(value))
            elif key == "silence_s":
                self._silence_s = float(value)
                self._check_silence()

    def _expire(self) -> NoReturn:
        """End the sandbox, as its time is up."""
        self._stream.send(frames.BYE, 0, frames.encode_record([("reason", "ttl")]))
        self._stream.drain()
        self.leave()

    def _check_silence(self) -> None:
        """Exit when the host was silent for so long that it, or the program that connects it, must be gone."""
        leaves_at = self._stream.received_at + self._silence_s
        if time.monotonic() >= leaves_at:
            self.leave()
        self._loop.set_timer(self._check_silence, leaves_at)

    def _check_limits(self) -> None:
        """Kill commands that exceed a limit; check again soon, while processes of a command exist."""
        running = self._executor.running
        for limit, shim in self._watchdog.exceeded(list(running)):
            self._executor.kill(running[shim], limit)
        self._next_check = time.monotonic() + _CHECK_INTERVAL_S
        if running:
            self._loop.set_timer(self._check_limits, self._next_check)

    def leave(self) -> NoReturn:
        """End everything inside. If the guest is the first process of a PID namespace, the kernel does that."""
        if os.getpid() != 1:
            me = os.getpid()
            processes.kill_all(lambda: processes.descendants(me, processes.list_processes()), 5.0)
        os._exit(0)

    def _on_room(self) -> None:
        self._executor.on_room()
        self._connections.on_room()

    def _on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind in frames.CONNECTION_KINDS:
            self._connections.on_frame(kind, channel, payload)
        elif kind == frames.PING:
            self._stream.send(frames.PONG, 0, payload)
        elif kind == frames.STATS:
            self._stream.send(frames.STATS_REPLY, 0, frames.encode_record(self._watchdog.measure().items()))
        elif kind == frames.CONFIG:
            self._configure(frames.decode_record(payload))
        else:
            self._executor.on_frame(kind, channel, payload)
            self._loop.set_timer(self._check_limits, self._next_check)

    def _on_child(self) -> None:
        os.read(self._wake, 4096)
        self._executor.reap()


def main() -> NoReturn:
    """Take the stream away from descriptors 0 and 1, then serve.

    Arguments: `mask` masks /proc/1 (see `kernel.mask_guest`); any other is a system call filter in hexadecimal digits.
    """
    stream_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    stream_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for number in (1, 2, 3, 13, processes.SIGTERM):  # HUP, INT, QUIT, PIPE: only the stream ends the guest
        _signal.signal(number, _signal.SIG_IGN)
    # A shim that is not yet ready for the end of its file operation finds the signal pending.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (processes.SIGTERM,))
    os.umask(0o022)
    is_masked = "mask" in sys.argv[1:] and kernel.mask_guest((stream_in, stream_out))
    filters = [bytes.fromhex(word) for word in sys.argv[1:] if word != "mask"]
    is_filtered = bool(filters) and kernel.install_filter(filters[0])
    gc.freeze()  # exempts all objects so far from collection, in this process and all its forks
    guest = Guest(stream_in, stream_out, is_masked=is_masked, is_filtered=is_filtered)
    try:
        guest.run()
    except BaseException:  # noqa: BLE001 -- the boundary of a process: reports it, and leaves no process behind
        sys.excepthook(*sys.exc_info())
        guest.leave()
