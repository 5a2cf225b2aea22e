"""The guest: the sandbox's first process. One thread, one epoll, commands as channels on one stream."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal: no stubs, no enum
import _socket
import fcntl
import marshal
import os
import select
import sys
import time

from . import frames, kernel, supervisor, tree, watchdog
from .command import Command
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Optional

    Work = tuple[dict[str, Any], list[int]]

_MAX_COMMANDS = 256
_MAX_IDLE = 2
_FORK_PAUSE_S = 0.5
_REMIND_S, _REMINDERS = 0.05, 10
_SPEC_BY_SOCKET = 64 * 1024
_HIGHEST_FD = 8192


class Guest:
    """All state of one sandbox's inside."""

    def __init__(self, stream_in: int, stream_out: int) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self.commands: dict[int, Command] = {}
        self._supervisors: dict[int, Command] = {}
        self._idle: list[tuple[int, _socket.socket]] = []
        self._fork_again_at = 0.0
        self._watch = watchdog.Watchdog()
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.stream = Stream(self, stream_in, stream_out, self._on_frame, self._on_room)
        self.listen(self._wake, self._on_child)

    # --- the loop

    def run(self) -> NoReturn:
        """Serve until the host closes the stream."""
        undumpable = kernel.become_undumpable()
        kernel.become_subreaper()
        self.send(
            frames.HELLO,
            0,
            frames.encode_record(
                [
                    ("version", frames.VERSION),
                    ("python", "%d.%d.%d" % sys.version_info[:3]),
                    ("pid", os.getpid()),
                    ("uid", os.getuid()),
                    ("undumpable", int(undumpable)),
                ]
            ),
        )
        while True:
            if not self._idle and time.monotonic() >= self._fork_again_at:
                # Forked while nobody waits: the next command then needs no fork of this process.
                events = self._poll.poll(0)
                if not events:
                    self._make_idle()
                    continue
            else:
                events = self._poll.poll(self._pause())
            for descriptor, mask in events:
                handler = self._handlers.get(descriptor)
                if handler is not None:
                    handler(mask)
            self._tick()

    def _make_idle(self) -> None:
        try:
            self._idle.append(self._fork_supervisor(None))
        except OSError:  # no more processes may be made now; the next command tries again
            self._fork_again_at = time.monotonic() + _FORK_PAUSE_S

    def listen(self, descriptor: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        """Call `handler` with the event mask when `descriptor` is ready."""
        if descriptor in self._handlers:
            self._poll.modify(descriptor, mask)
        else:
            self._poll.register(descriptor, mask)
        self._handlers[descriptor] = handler

    def ignore(self, descriptor: int) -> None:
        """Stop listening to `descriptor`."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _pause(self) -> float:
        """Seconds until something must be done, or -1."""
        times = [command.deadline for command in self.commands.values() if command.deadline is not None]
        times += self._watch.times(bool(self._supervisors))
        return max(0.0, min(times) - time.monotonic()) + 0.001 if times else -1

    def _tick(self) -> None:
        now = time.monotonic()
        for command in [
            one for one in self.commands.values() if one.deadline is not None and one.deadline <= now
        ]:
            if command.killed_as is None:
                self.kill(command, "timeout")
            else:
                self._give_up(command)
        if self._watch.expired(now):
            self._end("ttl")
        for limit, victim in self._watch.breaches(now, list(self._supervisors)):
            command_of = self._supervisors.get(victim)
            if command_of is not None:
                self.kill(command_of, limit)

    def _end(self, reason: str) -> NoReturn:
        self.send(frames.BYE, 0, frames.encode_record([("reason", reason)]))
        self.stream.drain()
        self.leave()

    def leave(self) -> NoReturn:
        """End everything inside. As the first process of a PID namespace, the kernel does it for us."""
        if os.getpid() != 1:
            me = os.getpid()
            tree.kill_all(lambda: tree.descendants(me, tree.snapshot()), 5.0)
        os._exit(0)

    # --- frames

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame for the host."""
        self.stream.send(kind, channel, payload)

    def _on_room(self) -> None:
        for command in self.commands.values():
            command.rearm()

    def _on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == frames.OPEN:
            self._open(channel, payload)
        elif kind == frames.PING:
            self.send(frames.PONG, 0, payload)
        elif kind == frames.STATS:
            self.send(frames.STATS_REPLY, 0, frames.encode_record(self._watch.measure().items()))
        elif kind == frames.CONFIG:
            self._watch.configure(frames.decode_record(payload))
        else:
            command = self.commands.get(channel)
            if command is not None:  # one that just ended: its last frames crossed on the way
                command.on_frame(kind, payload)

    # --- commands

    def _open(self, channel: int, payload: bytes) -> None:
        if channel in self.commands or len(self.commands) >= _MAX_COMMANDS:
            reason = "more than %d commands at once" % _MAX_COMMANDS
            self.send(frames.FAIL, channel, frames.encode_record([("errno", 11), ("message", reason)]))
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
            self.send(frames.FAIL, channel, frames.encode_record(fields))
            return
        self.commands[channel] = command
        self._hand_over(command, spec)

    def _hand_over(self, command: Command, spec: dict[str, object]) -> None:
        blob = marshal.dumps(spec)
        while self._idle and len(blob) < _SPEC_BY_SOCKET:
            pid, sock = self._idle.pop()
            ends = b"".join(end.to_bytes(4, sys.byteorder, signed=True) for end in command.ends)
            try:
                sock.sendmsg([blob], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ends)])
            except OSError:
                sock.close()  # something inside killed it
                continue
            self._supervisors[pid] = command
            command.adopt(pid, sock)
            return
        try:
            pid, sock = self._fork_supervisor((spec, list(command.ends)))
        except OSError as error:
            command.could_not_start(error)
            return
        self._supervisors[pid] = command
        command.adopt(pid, sock)

    def release(self, pid: int, sock: _socket.socket) -> None:
        """A supervisor whose last command left nothing behind takes the next, if not enough are waiting."""
        del self._supervisors[pid]
        if len(self._idle) < _MAX_IDLE:
            self._idle.append((pid, sock))
        else:
            sock.close()

    def _fork_supervisor(self, first: Work | None) -> tuple[int, _socket.socket]:
        """Make a supervisor; `first` is its first command, inherited by the fork however large it is."""
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
        if not tree.kill_all(lambda: tree.descendants(pid, tree.snapshot()), 0.6) and os.getpid() == 1:
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

    def _on_child(self, _mask: int) -> None:
        os.read(self._wake, 4096)
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
        me = os.getpid()

        def orphans() -> list[int]:
            ours = set(self._supervisors)
            ours.update(pid for pid, _sock in self._idle)
            table = tree.snapshot()
            roots = [pid for pid, row in table.items() if row[0] == me and pid not in ours and row[1] != b"Z"]
            return roots + [pid for root in roots for pid in tree.descendants(root, table)]

        tree.kill_all(orphans, 0.6)


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


def main() -> NoReturn:
    """Take the stream away from descriptors 0 and 1, then serve."""
    stream_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    stream_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for number in (1, 2, 3, 13, 15):  # HUP, INT, QUIT, PIPE, TERM: the end comes by the stream
        _signal.signal(number, _signal.SIG_IGN)
    os.umask(0o022)
    guest = Guest(stream_in, stream_out)
    try:
        guest.run()
    except BaseException:  # noqa: BLE001 -- the boundary of a process: told, and nobody left behind
        sys.excepthook(*sys.exc_info())
        guest.leave()
