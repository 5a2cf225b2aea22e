"""One command on one channel: its pipes, its credit, its end."""

from __future__ import annotations

import fcntl
import posix as os
import select
import sys
import time

from . import frames, tree
from .output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket  # noqa: N812
    from typing import Any, Protocol

    from .loop import Loop
    from .stream import Stream

    class Owner(Protocol):
        """Who has the command started, waits for it, and is told its end."""

        loop: Loop
        stream: Stream
        owns_orphans: bool

        def kill(self, command: Command, reason: str) -> None:
            """Kill everything the command started."""

        def release(self, supervisor: int, sock: Socket) -> None:
            """The command's supervisor is free."""

        def forget(self, channel: int) -> bool:
            """The command is over; False if that was known."""


_TIOCSWINSZ, _F_SETPIPE_SZ = 0x5414, 1031
_PIPE = 1024 * 1024


class Command:
    """A running command or file operation, and later the stragglers it left."""

    def __init__(self, owner: Owner, channel: int, spec: dict[str, Any]) -> None:
        self.owner = owner
        self.channel = channel
        self.is_operation = bool(spec.get("op"))
        self.supervisor = 0
        self.killed_as: str | None = None
        self.deadline: float | None = None
        if spec.get("timeout_s"):
            self.deadline = time.monotonic() + float(spec["timeout_s"])
        self.reminders = 0
        self._pid = 0
        self._early: list[int] = []
        """Signals that came before the command was started."""
        self._status: Socket | None = None
        self._end: tuple[int, float] | None = None
        self._failure: tuple[str, str, str] | None = None
        self._started = time.monotonic()
        self._pending = bytearray()
        self._stdin_ended = False
        self._is_tty = "rows" in spec
        self._window = int(spec["window"])
        self._reads: tuple[int, ...]
        """Where its stdout, and its stderr if that is another, are read."""
        self.ends: tuple[int, ...]
        """What its supervisor is given."""
        self.outputs: list[Output] = []
        if self._is_tty:
            self._open_tty(spec)
        else:
            stdin_read, self._stdin, stdout_read, stdout_write, stderr_read, stderr_write = _pipes(3)
            self._reads, self.ends = (stdout_read, stderr_read), (stdin_read, stdout_write, stderr_write)

    def _open_tty(self, spec: dict[str, Any]) -> None:
        master, slave = os.openpty()
        spec["tty"] = os.ttyname(slave)
        fcntl.ioctl(master, _TIOCSWINSZ, _window_size(int(spec["rows"]), int(spec["cols"])))
        self._stdin = os.dup(master)
        self._reads, self.ends = (master,), (slave,)

    def _listen(self) -> None:
        """Let go of the supervisor's ends, and listen at ours."""
        for end in self.ends:
            os.close(end)
        os.set_blocking(self._stdin, False)
        if not self._is_tty:
            _enlarge(self._reads[0])
        for read, kind in zip(self._reads, (frames.STDOUT, frames.STDERR)):
            self.outputs.append(Output(self, read, channel=self.channel, kind=kind, credit=self._window))

    def adopt(self, supervisor: int, status: Socket) -> None:
        """The supervisor has taken over its ends of the pipes."""
        self.supervisor = supervisor
        self._status = status
        self._listen()
        status.setblocking(False)
        self.owner.loop.listen(status.fileno(), self._on_status)

    def could_not_start(self, error: OSError) -> None:
        """There is no supervisor for it, and no process to make one."""
        self._listen()
        self._finish(None, ("spawn", str(error.errno or 0), error.strerror or str(error)))

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the host for this channel."""
        if kind == frames.STDIN:
            self._pending += payload
            self._write(0)
        elif kind == frames.STDIN_END:
            if self._is_tty:
                self._pending += b"\x04"  # a terminal has no end; this is what a person types
            else:
                self._stdin_ended = True
            self._write(0)
        elif kind == frames.CREDIT_OUT:
            self._credit(0, payload)
        elif kind == frames.CREDIT_ERR:
            self._credit(-1, payload)
        elif kind == frames.SIGNAL:
            self._signal(frames.U32.unpack(payload)[0])
        elif kind == frames.RESIZE and self._is_tty and self._stdin >= 0:
            rows, columns = frames.SIZE.unpack(payload)
            fcntl.ioctl(self._stdin, _TIOCSWINSZ, _window_size(rows, columns))
        elif kind == frames.KILL:
            self.owner.kill(self, "cancel")
            for output in self.outputs:
                output.drop()

    def _credit(self, which: int, payload: bytes) -> None:
        output = self.outputs[which]
        output.credit += frames.U32.unpack(payload)[0]
        output.arm()

    def rearm(self) -> None:
        """The stream to the host has room again."""
        for output in self.outputs:
            output.arm()

    def _signal(self, number: int) -> None:
        if not self._pid:
            self._early.append(number)
        elif self._end is None:
            try:
                os.killpg(self._pid, number)  # its session's first group: what a terminal would signal
            except (ProcessLookupError, PermissionError):
                tree.send(self._pid, number)

    # --- stdin

    def _write(self, _mask: int) -> None:
        written = 0
        while self._pending and self._stdin >= 0:
            try:
                count = os.write(self._stdin, self._pending)
            except BlockingIOError:
                break
            except OSError:  # the command closed its stdin: what comes is dropped
                self._close_stdin()
                break
            del self._pending[:count]
            written += count
        if self._stdin < 0:
            written += len(self._pending)
            self._pending.clear()
        if written:
            self.owner.stream.send(frames.CREDIT_IN, self.channel, frames.U32.pack(written))
        if self._pending:
            self.owner.loop.listen(self._stdin, self._write, select.EPOLLOUT)
        elif self._stdin >= 0:
            self.owner.loop.ignore(self._stdin)
            if self._stdin_ended:
                self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self.owner.loop.ignore(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    # --- the end

    def _on_status(self, _mask: int) -> None:
        assert self._status is not None
        try:
            message = self._status.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        kind, rest = message[:1], message[1:]
        if kind == b"P":
            self._pid = int(rest)
            while self._early:
                self._signal(self._early.pop(0))
            if self.killed_as is not None:  # it was killed before there was anything to kill
                self.owner.kill(self, self.killed_as)
        elif kind == b"X":
            self._on_end(rest)
        elif kind == b"E":
            stage, number, text = rest.split(b" ", 2)
            self._finish(None, (stage.decode(), number.decode(), text.decode("utf-8", "replace")))
        elif kind == b"O":
            self.owner.owns_orphans = True
        elif kind == b"R":
            self._release()
            self.settle()
        else:
            self._close_status()

    def _on_end(self, words: bytes) -> None:
        status, seconds, *ready = words.split()
        if ready:
            self._release()
        self._finish((int(status), float(seconds)), None)

    def _release(self) -> None:
        """Nothing is left of the command: its supervisor is free."""
        assert self._status is not None
        if not self.supervisor:
            self._close_status()  # it was killed after its last word, and reaped
            return
        status, pid = self._status, self.supervisor
        self._status, self.supervisor = None, 0
        self.owner.loop.ignore(status.fileno())
        self.owner.release(pid, status)

    def on_supervisor_gone(self, was_killed: bool) -> None:
        """The supervisor was reaped. If it never reported, something inside killed it."""
        self.supervisor = 0
        while self._status is not None:
            self._on_status(0)
        if self._end is None and self._failure is None:
            self._finish((9 if was_killed else 256, time.monotonic() - self._started), None)
        self.settle()

    def _close_status(self) -> None:
        if self._status is not None:
            self.owner.loop.ignore(self._status.fileno())
            self._status.close()
            self._status = None

    def _finish(self, end: tuple[int, float] | None, failure: tuple[str, str, str] | None) -> None:
        if self._end is not None or self._failure is not None:
            return
        self._end, self._failure = end, failure
        if self.killed_as is None:
            self.deadline = None
        self._close_stdin()
        for output in self.outputs:
            output.on_exit()
        self.settle()

    def settle(self) -> None:
        """Tell the end once it is known and all output of the command is sent."""
        if not all(output.is_done for output in self.outputs):
            return
        if self.killed_as is not None and self.supervisor:
            return  # until its whole tree is gone
        if self._failure is not None:
            fields: list[tuple[str, object]] = list(zip(("stage", "errno", "message"), self._failure))
            kind = frames.FAIL
        elif self._end is not None:
            status, seconds = self._end
            number = status & 0x7F
            fields = [
                ("code", 128 + number if number else status >> 8),
                ("signal", number),
                ("ended_by", self.killed_as or ("signal" if number else "exit")),
                ("duration_s", "%.6f" % seconds),
            ]
            kind = frames.EXIT
        else:
            return
        if self.owner.forget(self.channel):
            self.owner.stream.send(kind, self.channel, frames.encode_record(fields))


def _pipes(count: int) -> list[int]:
    """So many pipes, each its reading and its writing end; all of them or none."""
    ends: list[int] = []
    try:
        for _ in range(count):
            ends += os.pipe()
    except OSError:
        for end in ends:
            os.close(end)
        raise
    return ends


def _enlarge(pipe: int) -> bool:
    """Ask for the largest buffer a user may have. Refused (allowance used up): slower, not wrong."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE)
        return True
    except OSError:
        return False


def _window_size(rows: int, columns: int) -> bytes:
    """A struct winsize. `array` would be the better word, and imports all of `collections` (2 ms)."""
    return b"".join(side.to_bytes(2, sys.byteorder) for side in (rows, columns, 0, 0))
