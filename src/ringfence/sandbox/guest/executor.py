"""Starts commands in shims, kills them with everything they started, and reaps processes."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum
import _socket
import marshal
import posix as os
import sys
import time

from . import frames, processes, shim
from .command import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .stream import EventLoop, Stream

_MAX_IDLE = 2
_FORK_PAUSE_S = 0.5
_KILL_S = 0.6
_SHIM_GRACE_S = 2.0
"""How long a shim may take to report after a kill, even on a busy machine, before it is killed itself."""
_OPERATION_GRACE_S = 10.0
"""The same for a file operation, which removes its temporary file; one that is killed leaves it."""
_MAX_SPEC = 64 * 1024
"""Size of the longest spec that fits in a message; a new shim inherits a longer one."""
_MAX_DESCRIPTOR = 8192


class Shim:
    """The guest's handle of a shim process."""

    def __init__(self, pid: int, sock: _socket.socket) -> None:
        self.pid = pid
        self.socket = sock
        self.command: Command | None = None
        """The command whose process tree it owns; None while it is idle."""

    def receive(self) -> Optional[bytes]:
        """Its next report; empty if it has ended, None if none has come yet."""
        try:
            return self.socket.recv(64 * 1024)
        except BlockingIOError:
            return None
        except OSError:
            return b""


class Executor:
    """All commands and their shims."""

    def __init__(self, loop: EventLoop, stream: Stream) -> None:
        self.loop = loop
        self.stream = stream
        self._commands: dict[int, Command] = {}
        self._shims: dict[int, Shim] = {}
        self._idle: list[Shim] = []
        self._fork_again_at = 0.0

    @property
    def running(self) -> dict[int, Command]:
        """The command that each shim owns (or whose remaining processes it owns), by the shim's pid."""
        return {pid: owner.command for pid, owner in self._shims.items() if owner.command is not None}

    @property
    def needs_idle_shim(self) -> bool:
        """Whether to fork a shim while there is nothing else to do, so that the next command needs no fork."""
        return not self._idle and time.monotonic() >= self._fork_again_at

    def fork_idle_shim(self) -> None:
        """Fork a shim for the next command."""
        try:
            self._idle.append(self._fork(None))
        except OSError:  # no more processes may be made now; the next command tries again
            self._fork_again_at = time.monotonic() + _FORK_PAUSE_S

    def on_room(self) -> None:
        """Handle that the stream to the host has room again."""
        for command in self._commands.values():
            command.on_room()

    def on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """Handle a frame of the host; one for a command that has just ended is ignored."""
        if kind == frames.OPEN:
            self._open(channel, payload)
        elif channel in self._commands:
            self._commands[channel].on_frame(kind, payload)

    def finish(self, command: Command, kind: int, fields: dict[str, object]) -> None:
        """Send the last frame of a command's channel, once."""
        if self._commands.pop(command.channel, None) is not None:
            self.stream.send(kind, command.channel, frames.encode_record(fields.items()))

    def _open(self, channel: int, payload: bytes) -> None:
        stage = "start"
        try:
            spec = _parse_spec(payload)
            command = Command(self, channel, spec)
            stage = "spawn"
            owner = self._start(command, spec)
        except OSError as error:
            self.stream.send_failure(channel, error, stage)
            return
        # Done only now, while the shim starts the command, which needs none of it.
        self._commands[channel] = command
        owner.command = command
        command.on_shim(owner)

    def _start(self, command: Command, spec: dict[str, Any]) -> Shim:
        """Give a command to an idle shim, else to a new one."""
        request = marshal.dumps(spec)
        while self._idle and len(request) < _MAX_SPEC:
            idle = self._idle.pop()
            ends = b"".join(end.to_bytes(4, sys.byteorder, signed=True) for end in command.ends)
            try:
                idle.socket.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ends)])
            except OSError:  # a process inside killed it
                idle.socket.close()
                continue
            return idle
        try:
            return self._fork((spec, list(command.ends)))
        except OSError:
            command.abandon()
            raise

    def release(self, owner: Shim) -> None:
        """Keep a shim whose command left nothing behind for the next command, or end it."""
        self.loop.set_reader(owner.socket.fileno(), None)
        command, owner.command = owner.command, None
        # A signal that was meant for a killed command may still be on its way.
        if len(self._idle) < _MAX_IDLE and command is not None and command.killed_as is None:
            self._idle.append(owner)
        else:
            owner.socket.close()

    def _fork(self, first: shim.Work | None) -> Shim:
        """Fork a shim; it inherits its first command, `first`, however large that is."""
        try:
            import resource  # noqa: F401 -- once for all shims, each of which would import it for its first command
        except (ImportError, OSError):
            pass  # no descriptor is available to read it: the shim tries again

        mine, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            theirs.close()
            raise
        if pid == 0:
            _signal.set_wakeup_fd(-1)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            _close_all_but(theirs.fileno(), *(first[1] if first else ()))
            waiting = [first] if first else []
            shim.serve(lambda: waiting.pop() if waiting else _receive_work(theirs), theirs)
        theirs.close()
        forked = self._shims[pid] = Shim(pid, mine)
        return forked

    def kill(self, command: Command, reason: str) -> None:
        """Kill everything that a command started; its EXIT will give `reason`."""
        if command.killed_as is None:
            command.killed_as = reason
        grace_s = _OPERATION_GRACE_S if command.is_operation else _SHIM_GRACE_S
        self.loop.set_timer(command.on_deadline, time.monotonic() + grace_s)
        if command.shim is None:
            return  # only its output remains to be sent
        pid = command.shim.pid
        processes.send_signal(pid, processes.SIGCONT)
        if command.is_operation:
            processes.send_signal(pid, processes.SIGTERM)
            return
        is_killed = processes.kill_all(
            lambda: processes.descendants(pid, processes.list_processes()), _KILL_S
        )
        if not is_killed and os.getpid() == 1:
            processes.send_signal(-1, processes.SIGKILL)

    def reap(self) -> None:
        """Collect children that ended: shims, and orphans of killed ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._shims.pop(pid, None)
            if ended is None:
                continue
            if ended in self._idle:
                self._idle.remove(ended)
            if ended.command is not None:
                self.loop.set_reader(ended.socket.fileno(), None)
                ended.command.on_shim_exit(os.WIFSIGNALED(status))
                if os.WIFSIGNALED(status):  # by a process inside: its descendants are our children now
                    processes.kill_all(self._orphans, _KILL_S)
            ended.socket.close()

    def _orphans(self) -> list[int]:
        """Our descendants that belong to no shim."""
        me, table = os.getpid(), processes.list_processes()
        roots = [
            pid for pid, row in table.items() if row[0] == me and pid not in self._shims and row[1] != b"Z"
        ]
        return roots + [pid for root in roots for pid in processes.descendants(root, table)]


def _parse_spec(payload: bytes) -> dict[str, Any]:
    spec: dict[str, Any] = {"argv": [], "env": []}
    for key, value in frames.decode_record(payload):
        if key in ("argv", "env"):
            spec[key].append(value)
        else:
            spec[key] = value
    return spec


def _close_all_but(*kept: int) -> None:
    """Close the guest's descriptors that a fork inherited, above all the stream and other commands' pipes."""
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _MAX_DESCRIPTOR)


def _receive_work(sock: _socket.socket) -> Optional[shim.Work]:
    """In a shim: the next command and its descriptors; None when the guest closed the socket."""
    request, ancillary, _flags, _address = sock.recvmsg(_MAX_SPEC + 4096, 256, _socket.MSG_CMSG_CLOEXEC)
    if not request:
        return None
    ends = [
        int.from_bytes(data[place : place + 4], sys.byteorder, signed=True)
        for _level, _kind, data in ancillary
        for place in range(0, len(data), 4)
    ]
    return marshal.loads(request), ends
