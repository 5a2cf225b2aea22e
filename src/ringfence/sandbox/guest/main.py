"""The guest: the sandbox's first process. One thread, one epoll, commands and connections as channels on one stream."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum
import fcntl
import gc
import posix as os
import sys
import time

from . import frames, kernel, tree, watchdog
from .commands import Commands
from .connections import Connections
from .loop import Loop
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Guest:
    """All state of one sandbox's inside."""

    def __init__(self, stream_in: int, stream_out: int, *, is_covered: bool) -> None:
        self._is_covered = is_covered
        self._watch = watchdog.Watchdog()
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._loop = Loop()
        self._loop.listen(self._wake, self._on_child)
        self._stream = Stream(self._loop, stream_in, stream_out, self._on_frame, self._on_room, self.leave)
        self._commands = Commands(self._loop, self._stream)
        self._connections = Connections(self._loop, self._stream)

    def run(self) -> NoReturn:
        """Serve until the host closes the stream."""
        self._greet()
        while True:
            due = self._due()
            if self._commands.wants_idle:
                if not self._loop.turn(0):
                    self._commands.make_idle()
                    continue
            elif due is None:
                self._loop.turn(-1)
            else:
                self._loop.turn(max(0.0, due - time.monotonic()) + 0.001)
            if due is not None and time.monotonic() >= due:
                self._tick()

    def _greet(self) -> None:
        undumpable = kernel.become_undumpable()
        kernel.become_subreaper()
        fields = [
            ("version", frames.VERSION),
            ("python", "%d.%d.%d" % sys.version_info[:3]),
            ("pid", os.getpid()),
            ("uid", os.getuid()),
            ("undumpable", int(undumpable)),
            ("covered", int(self._is_covered)),
        ]
        self._stream.send(frames.HELLO, 0, frames.encode_record(fields))

    def _due(self) -> float | None:
        """When (monotonic) something must be done next."""
        times = self._commands.deadlines() + self._connections.deadlines()
        times += self._watch.times(self._commands.is_busy, self._stream.heard_at)
        return min(times) if times else None

    def _tick(self) -> None:
        now = time.monotonic()
        self._commands.tick(now)
        self._connections.tick(now)
        if self._watch.expired(now):
            self._end("ttl")
        if self._watch.is_abandoned(now, self._stream.heard_at):
            self.leave()
        for limit, victim in self._watch.breaches(now, self._commands.supervisors):
            self._commands.blame(victim, limit)

    def _end(self, reason: str) -> NoReturn:
        self._stream.send(frames.BYE, 0, frames.encode_record([("reason", reason)]))
        self._stream.drain()
        self.leave()

    def leave(self) -> NoReturn:
        """End everything inside. As the first process of a PID namespace, the kernel does it for us."""
        if os.getpid() != 1:
            me = os.getpid()
            tree.kill_all(lambda: tree.descendants(me, tree.snapshot()), 5.0)
        os._exit(0)

    def _on_room(self) -> None:
        self._commands.rearm()
        self._connections.rearm()

    def _on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind in frames.CONNECTION_KINDS:
            self._connections.on_frame(kind, channel, payload)
        elif kind == frames.PING:
            self._stream.send(frames.PONG, 0, payload)
        elif kind == frames.STATS:
            self._stream.send(frames.STATS_REPLY, 0, frames.encode_record(self._watch.measure().items()))
        elif kind == frames.CONFIG:
            self._watch.configure(frames.decode_record(payload))
        else:
            self._commands.on_frame(kind, channel, payload)

    def _on_child(self, _mask: int) -> None:
        os.read(self._wake, 4096)
        self._commands.reap()


def main() -> NoReturn:
    """Take the stream away from descriptors 0 and 1, then serve."""
    stream_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    stream_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for number in (1, 2, 3, 13, 15):  # HUP, INT, QUIT, PIPE, TERM: the end comes by the stream
        _signal.signal(number, _signal.SIG_IGN)
    os.umask(0o022)
    # From a backend whose engine's kernel or filter does not protect us: "cover", and a filter.
    is_covered = "cover" in sys.argv[1:] and kernel.cover_guest([stream_in, stream_out])
    for program in sys.argv[1:]:
        if program != "cover":
            kernel.filter_calls(bytes.fromhex(program))
    gc.freeze()  # what is here now stays: no collection walks through it, in us and in all we fork
    guest = Guest(stream_in, stream_out, is_covered=is_covered)
    try:
        guest.run()
    except BaseException:  # noqa: BLE001 -- the boundary of a process: told, and nobody left behind
        sys.excepthook(*sys.exc_info())
        guest.leave()
