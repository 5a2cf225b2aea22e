"""All commands inside, and the supervisors that start them and own what they leave behind."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum
import _socket
import marshal
import posix as os
import sys
import time

from . import frames, supervisor, tree
from .command import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .loop import Loop
    from .stream import Stream

    Work = tuple[dict[str, Any], list[int]]

_MAX_COMMANDS = 256
_MAX_IDLE = 2
_FORK_PAUSE_S = 0.5
_REMIND_S, _REMINDERS = 0.05, 10
_SPEC_BY_SOCKET = 64 * 1024
_HIGHEST_FD = 8192


class Commands:
    """Opens, kills and reaps."""

    def __init__(self, loop: Loop, stream: Stream) -> None:
        self.loop = loop
        self.stream = stream
        self._commands: dict[int, Command] = {}
        self._supervisors: dict[int, Command] = {}
        self._idle: list[tuple[int, _socket.socket]] = []
        self._fork_again_at = 0.0
        self.owns_orphans = False
        """Where the kernel makes no subreapers (gVisor of 2022), orphans come to the guest, whosever they were."""

    @property
    def supervisors(self) -> list[int]:
        """Those that own a command, or what one left."""
        return list(self._supervisors)

    @property
    def is_busy(self) -> bool:
        """Whether there is a command, or what one left."""
        return bool(self._supervisors)

    @property
    def wants_idle(self) -> bool:
        """Whether a supervisor should be forked while nobody waits: the next command then needs no fork."""
        return not self._idle and time.monotonic() >= self._fork_again_at

    def make_idle(self) -> None:
        """Fork a supervisor ahead."""
        try:
            self._idle.append(self._fork_supervisor(None))
        except OSError:  # no more processes may be made now; the next command tries again
            self._fork_again_at = time.monotonic() + _FORK_PAUSE_S

    def deadlines(self) -> list[float]:
        """When (monotonic) there is something to do."""
        return [command.deadline for command in self._commands.values() if command.deadline is not None]

    def tick(self, now: float) -> None:
        """Kill what is past its deadline."""
        for command in [
            one for one in self._commands.values() if one.deadline is not None and one.deadline <= now
        ]:
            if command.killed_as is None:
                self.kill(command, "timeout")
            else:
                self._give_up(command)

    def blame(self, pid: int, limit: str) -> None:
        """Kill the command of a supervisor, which used more than `limit` allows."""
        command = self._supervisors.get(pid)
        if command is not None:
            self.kill(command, limit)

    def rearm(self) -> None:
        """The stream to the host has room again."""
        for command in self._commands.values():
            command.rearm()

    def on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """A frame of the host for a command; for one that just ended it crossed the end on the way."""
        if kind == frames.OPEN:
            self._open(channel, payload)
        elif channel in self._commands:
            self._commands[channel].on_frame(kind, payload)

    def forget(self, channel: int) -> bool:
        """A command is over; False if that was known."""
        return self._commands.pop(channel, None) is not None

    def _open(self, channel: int, payload: bytes) -> None:
        if channel in self._commands or len(self._commands) >= _MAX_COMMANDS:
            reason = "more than %d commands at once" % _MAX_COMMANDS
            self.stream.send(frames.FAIL, channel, frames.encode_record([("errno", 11), ("message", reason)]))
            return
        spec: dict[str, object] = {"argv": [], "env": []}
        for key, value in frames.decode_record(payload):
            if key in ("argv", "env"):
                spec[key].append(value)  # type: ignore[attr-defined]  # the two keys that are lists
            else:
                spec[key] = value
        try:
            command = Command(self, channel, spec)
        except OSError as error:
            fields = [("errno", error.errno or 0), ("message", error.strerror or str(error))]
            self.stream.send(frames.FAIL, channel, frames.encode_record(fields))
            return
        self._commands[channel] = command
        try:
            pid, sock = self._hand_over(command, spec)
        except OSError as error:
            command.could_not_start(error)
            return
        # Only now, while the supervisor starts it: nothing of this is needed for that.
        self._supervisors[pid] = command
        command.adopt(pid, sock)

    def _hand_over(self, command: Command, spec: dict[str, object]) -> tuple[int, _socket.socket]:
        """Give a command to an idle supervisor, else to a new one."""
        blob = marshal.dumps(spec)
        while self._idle and len(blob) < _SPEC_BY_SOCKET:
            pid, sock = self._idle.pop()
            ends = b"".join(end.to_bytes(4, sys.byteorder, signed=True) for end in command.ends)
            try:
                sock.sendmsg([blob], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ends)])
            except OSError:
                sock.close()  # something inside killed it
                continue
            return pid, sock
        return self._fork_supervisor((spec, list(command.ends)))

    def release(self, pid: int, sock: _socket.socket) -> None:
        """A supervisor whose last command left nothing behind takes the next, if not enough are waiting."""
        del self._supervisors[pid]
        if len(self._idle) < _MAX_IDLE:
            self._idle.append((pid, sock))
        else:
            sock.close()

    def _fork_supervisor(self, first: Work | None) -> tuple[int, _socket.socket]:
        """Make a supervisor; `first` is its first command, inherited by the fork however large it is."""
        try:  # noqa: SIM105 -- contextlib is not among what the guest loads
            import resource  # noqa: F401 -- here for all of them: in each, the first command would wait for it
        except (ImportError, OSError):
            pass  # no descriptor is left to read it by: the supervisor tries again

        mine, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            theirs.close()
            raise
        if pid == 0:
            self._become_child(theirs, first[1] if first else [])
            waiting = [first] if first else []
            supervisor.serve(lambda: waiting.pop() if waiting else _receive(theirs), theirs)
        theirs.close()
        return pid, mine

    def _become_child(self, keep: _socket.socket, ends: list[int]) -> None:
        """After a fork: hold nothing of the guest's, above all not the stream nor other commands' pipes."""
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        low = 3
        for descriptor in sorted((keep.fileno(), *ends)):
            os.closerange(low, descriptor)
            low = descriptor + 1
        os.closerange(low, _HIGHEST_FD)

    def kill(self, command: Command, reason: str) -> None:
        """Kill everything the command started, stragglers included; its EXIT will say `reason`."""
        if command.killed_as is None:
            command.killed_as = reason
        command.deadline = time.monotonic() + 0.5
        pid = command.supervisor
        if pid == 0:
            return  # over already, but for output on its way
        tree.send(pid, tree.SIGCONT)
        if command.is_operation:
            tree.send(pid, 15)
            command.reminders = _REMINDERS
            command.deadline = time.monotonic() + _REMIND_S
            return

        def owned() -> list[int]:
            table = tree.snapshot()
            return tree.descendants(pid, table) + (self._orphans(table) if self.owns_orphans else [])

        if not tree.kill_all(owned, 0.6) and os.getpid() == 1:
            tree.send(-1, tree.SIGKILL)

    def _give_up(self, command: Command) -> None:
        """The supervisor did not report in time after a kill: something inside stopped it. It goes too."""
        if command.supervisor and command.reminders:
            # Its handler may not have been there yet when it was first told.
            command.reminders -= 1
            command.deadline = time.monotonic() + _REMIND_S
            tree.send(command.supervisor, 15)
            return
        command.deadline = None
        if command.supervisor:
            tree.send(command.supervisor, tree.SIGKILL)

    def reap(self) -> None:
        """Children ended: supervisors, and orphans of killed ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for place, (idle, sock) in enumerate(self._idle):
                if idle == pid:
                    sock.close()
                    del self._idle[place]
                    break
            command = self._supervisors.pop(pid, None)
            if command is not None:
                command.on_supervisor_gone(os.WIFSIGNALED(status))
                if os.WIFSIGNALED(status):
                    self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Something inside killed a supervisor: what it owned is ours now, and dies."""
        tree.kill_all(lambda: self._orphans(tree.snapshot()), 0.6)

    def _orphans(self, table: tree.Table) -> list[int]:
        me = os.getpid()
        ours = set(self._supervisors)
        ours.update(pid for pid, _sock in self._idle)
        roots = [pid for pid, row in table.items() if row[0] == me and pid not in ours and row[1] != b"Z"]
        return roots + [pid for root in roots for pid in tree.descendants(root, table)]


def _receive(sock: _socket.socket) -> Optional[Work]:
    """In a supervisor: the next command and its descriptors; None when the guest lets go."""
    blob, extra, _flags, _address = sock.recvmsg(_SPEC_BY_SOCKET + 4096, 256, _socket.MSG_CMSG_CLOEXEC)
    if not blob:
        return None
    ends = [
        int.from_bytes(data[place : place + 4], sys.byteorder, signed=True)
        for _level, _kind, data in extra
        for place in range(0, len(data), 4)
    ]
    return marshal.loads(blob), ends
