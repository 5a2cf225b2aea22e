"""Runs one command on one channel: its pipes, its credit and its end."""

from __future__ import annotations

import fcntl
import posix as os
import sys
import time

from . import frames, processes
from .stream import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .executor import Executor, Shim

_TIOCSWINSZ, _FIONREAD, _F_SETPIPE_SZ = 0x5414, 0x541B, 1031
_PIPE_SIZE = 1024 * 1024
_READ = 256 * 1024
_END_OF_INPUT = b"\x04"
_KILLED, _UNKNOWN_STATUS = 9, 256


class Output:
    """The reading end of a command's stdout or stderr, sent as the host grants credit, before the last frame."""

    def __init__(self, command: Command, descriptor: int, kind: int, credit: int) -> None:
        self._command = command
        self._loop = command.executor.loop
        self._stream = command.executor.stream
        self._descriptor = descriptor
        self._kind = kind
        self._credit = credit
        self._left = sys.maxsize
        """Bytes still to be sent, once the command has ended. What other processes write later is dropped."""
        self._is_watched = False
        os.set_blocking(descriptor, False)
        self.update()

    @property
    def is_done(self) -> bool:
        """Whether everything that will be sent is sent."""
        return self._left <= 0

    def grant(self, credit: int) -> None:
        """Add credit."""
        self._credit += credit
        self.update()

    def update(self) -> None:
        """Watch the pipe if there may be something to read and there is room to send it."""
        has_room = self.is_done or (self._credit > 0 and not self._stream.is_full)
        wanted = self._descriptor >= 0 and has_room
        if wanted != self._is_watched:
            self._is_watched = wanted
            self._loop.set_reader(self._descriptor, self._on_readable if wanted else None)

    def _on_readable(self) -> None:
        """Read only once, so that other channels get a turn before the next read."""
        room = _READ if self.is_done else min(_READ, self._credit, self._left)
        try:
            data = os.read(self._descriptor, room)
        except BlockingIOError:
            return
        except OSError:  # EIO: no process has the terminal open any more
            data = b""
        if not data:
            self._close()
        elif not self.is_done:
            self._credit -= len(data)
            self._left -= len(data)
            self._stream.send(self._kind, self._command.channel, data)
        self._settle()

    def drop(self) -> None:
        """Read the rest and discard it: the host wants no more, and the end need not wait for credit."""
        if not self.is_done:
            self._left = 0
            self._settle()

    def on_exit(self) -> None:
        """Send what is in the pipe when the command ends as the last of its output."""
        if not self.is_done:
            try:
                self._left = int.from_bytes(fcntl.ioctl(self._descriptor, _FIONREAD, bytes(4)), sys.byteorder)
            except OSError:
                self._left = 0
            self._settle()

    def _settle(self) -> None:
        self.update()
        self._command.settle()

    def _close(self) -> None:
        self._loop.set_reader(self._descriptor, None)
        self._is_watched = False
        os.close(self._descriptor)
        self._descriptor = -1
        self._left = 0


class Command:
    """A running command or file operation, and afterwards the processes that it left behind.

    Raises:
        OSError: Its pipes or its terminal cannot be made.
    """

    def __init__(self, executor: Executor, channel: int, spec: dict[str, Any]) -> None:
        self.executor = executor
        self.channel = channel
        self.is_operation = bool(spec.get("op"))
        self.shim: Shim | None = None
        """The shim; None before a shim has the command, and once nothing is left of it."""
        self.killed_as: str | None = None
        """Why it was killed."""
        self._started = time.monotonic()
        self._timeout_s = float(spec.get("timeout_s", 0))
        self._pid = 0
        self._early_signals: list[int] = []
        """Signals that arrived before the command was started."""
        self._end: tuple[int, dict[str, object]] | None = None
        """The last frame, once it is known."""
        self._stdin_ended = False
        self._is_tty = "rows" in spec
        self._window = int(spec["window"])
        self._outputs: list[Output] = []
        if self._is_tty:
            master, slave = os.openpty()
            spec["tty"] = os.ttyname(slave)
            _resize(master, int(spec["rows"]), int(spec["cols"]))
            self._stdin_fd, self._reads, self.ends = os.dup(master), [master], [slave]
        else:
            stdin, self._stdin_fd, stdout_read, stdout, stderr_read, stderr = _pipes(3)
            self._reads, self.ends = [stdout_read, stderr_read], [stdin, stdout, stderr]
        self._stdin = Writer(executor.loop, self._stdin_fd, self._on_stdin_written)

    def abandon(self) -> None:
        """Close everything, as no shim is available."""
        for descriptor in (*self.ends, *self._reads, self._stdin_fd):
            os.close(descriptor)

    def on_shim(self, shim: Shim) -> None:
        """Handle that a shim has received the command and its ends of the pipes."""
        self.shim = shim
        for end in self.ends:
            os.close(end)
        if not self._is_tty:
            _enlarge(self._reads[0])
        for descriptor, kind in zip(self._reads, (frames.STDOUT, frames.STDERR)):
            self._outputs.append(Output(self, descriptor, kind, self._window))
        shim.socket.setblocking(False)
        self.executor.loop.set_reader(shim.socket.fileno(), self._on_report_ready)
        if self._timeout_s:
            self.executor.loop.set_timer(self.on_deadline, self._started + self._timeout_s)

    def on_deadline(self) -> None:
        """Handle that its time is up, or that its shim did not report a kill in time."""
        if self.killed_as is None:
            self.executor.kill(self, "timeout")
        elif self.shim is not None:
            processes.send_signal(self.shim.pid, processes.SIGKILL)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the host for this channel."""
        if kind == frames.STDIN:
            self._stdin.write(payload)
        elif kind == frames.STDIN_END:
            if self._is_tty:
                self._stdin.write(_END_OF_INPUT)  # a terminal has no end; this is what a person types
            else:
                self._stdin_ended = True
                self._on_stdin_written(0)
        elif kind == frames.CREDIT_OUT:
            self._outputs[0].grant(frames.U32.unpack(payload)[0])
        elif kind == frames.CREDIT_ERR:
            self._outputs[-1].grant(frames.U32.unpack(payload)[0])
        elif kind == frames.SIGNAL:
            self._signal(frames.U32.unpack(payload)[0])
        elif kind == frames.RESIZE and self._is_tty and self._stdin_fd >= 0:
            _resize(self._stdin_fd, *frames.SIZE.unpack(payload))
        elif kind == frames.KILL:
            self.executor.kill(self, "cancel")
            for output in self._outputs:
                output.drop()

    def on_room(self) -> None:
        """Handle that the stream to the host has room again."""
        for output in self._outputs:
            output.update()

    def _signal(self, number: int) -> None:
        if not self._pid:
            self._early_signals.append(number)
        elif self._end is None:
            try:
                os.killpg(self._pid, number)  # its session's first group, which a terminal would signal
            except (ProcessLookupError, PermissionError):
                processes.send_signal(self._pid, number)

    def _on_stdin_written(self, count: int) -> None:
        if count:
            self.executor.stream.send(frames.CREDIT_IN, self.channel, frames.U32.pack(count))
        if self._stdin.is_lost or (self._stdin_ended and not self._stdin.pending):
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_fd >= 0:
            descriptor, self._stdin_fd = self._stdin_fd, -1
            self._stdin.close()
            os.close(descriptor)

    def _on_report_ready(self) -> None:
        assert self.shim is not None
        report = self.shim.receive()
        if report:
            self._on_report(report)
        elif report is not None:  # the shim has ended: `on_shim_exit` follows
            self.executor.loop.set_reader(self.shim.socket.fileno(), None)

    def _on_report(self, report: bytes) -> None:
        kind, _, rest = report.partition(b" ")
        if kind == b"started":
            self._pid = int(rest)
            while self._early_signals:
                self._signal(self._early_signals.pop(0))
            if self.killed_as is not None:  # it was killed before there was anything to kill
                self.executor.kill(self, self.killed_as)
        elif kind == b"exited":
            status, seconds, *ready = rest.split()
            if ready:
                self._release_shim()
            self._finish_exit(int(status), float(seconds))
        elif kind == b"failed":
            stage, number, text = rest.decode("utf-8", "replace").split(" ", 2)
            self._finish(frames.FAIL, {"stage": stage, "errno": number, "message": text})
        elif kind == b"ready":
            self._release_shim()
            self.settle()

    def _release_shim(self) -> None:
        if self.shim is not None:
            shim, self.shim = self.shim, None
            self.executor.release(shim)

    def on_shim_exit(self, was_killed: bool) -> None:
        """Handle that the shim has ended. If it never reported the command's end, a process inside killed it."""
        assert self.shim is not None
        shim, self.shim = self.shim, None
        while True:
            report = shim.receive()
            if not report:
                break
            self._on_report(report)
        self._finish_exit(_KILLED if was_killed else _UNKNOWN_STATUS, time.monotonic() - self._started)
        self.settle()

    def _finish_exit(self, status: int, seconds: float) -> None:
        number = status & 0x7F
        fields: dict[str, object] = {
            "code": 128 + number if number else status >> 8,
            "signal": number,
            "ended_by": "signal" if number else "exit",
            "duration_s": "%.6f" % seconds,
        }
        self._finish(frames.EXIT, fields)

    def _finish(self, kind: int, fields: dict[str, object]) -> None:
        """Note how the command ended; the first report counts."""
        if self._end is not None:
            return
        self._end = kind, fields
        if self.killed_as is None:
            self.executor.loop.cancel_timer(self.on_deadline)
        self._close_stdin()
        for output in self._outputs:
            output.on_exit()
        self.settle()

    def settle(self) -> None:
        """Send the last frame once it is known and everything before it has happened."""
        if self._end is None or not all(output.is_done for output in self._outputs):
            return
        kind, fields = self._end
        if self.killed_as is not None:
            if self.shim is not None:
                return  # not before its whole tree is gone
            if kind == frames.EXIT:
                fields["ended_by"] = self.killed_as
        self.executor.finish(self, kind, fields)


def _pipes(count: int) -> list[int]:
    """The reading and the writing end of each of `count` pipes; all of them or none."""
    ends: list[int] = []
    try:
        for _ in range(count):
            ends += os.pipe()
    except OSError:
        for end in ends:
            os.close(end)
        raise
    return ends


def _enlarge(pipe: int) -> None:
    """Set the largest buffer that a user may have; if that fails, the pipe is only slower."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:
        pass


def _resize(terminal: int, rows: int, columns: int) -> None:
    # A struct winsize. The module `array` would import all of `collections` (2 ms).
    size = b"".join(side.to_bytes(2, sys.byteorder) for side in (rows, columns, 0, 0))
    fcntl.ioctl(terminal, _TIOCSWINSZ, size)
