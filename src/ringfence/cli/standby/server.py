"""The standby: it loads, listens, and forks for each command that asks. It reads nothing that they send.

One thread, no event loop: a fork has one thread, and nothing that belongs to another. Python's own state that must not
be shared is taken care of by Python (`random` is seeded anew in each fork, OpenSSL notices by itself).
"""

import fcntl
import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from ringfence.cli.standby.files import Signs, again, signs
from ringfence.cli.standby.following import STATUS
from ringfence.cli.standby.forked import (
    PATIENCE_S,
    Gone,
    Loaded,
    Refused,
    become,
    compare,
    greet,
    hear,
    is_wanted,
    see_alike,
    tell_end,
    understood,
)
from ringfence.cli.standby.place import LOCK, SOCKET, hold, peer
from ringfence.cli.standby.streams import place_descriptors

_WAITING = 128
_MOST_FORKS = 512
_REASON_CHARS = 300
_LOOK_S = 86_400.0
"""poll(2) waits for some weeks at most."""
_TOLD_BYTES = 4096
_GOING = "begun"
"""What a fork tells that has begun with a command; all else is why it has not."""


class Standby:
    """Forks for whoever asks, until it is told to end, has had nothing to do for long, or its files have changed.

    Args:
        directory: Where it listens.
        lock: The descriptor by which it has that for itself.
        loaded: What it is.
        files: The signs of what was loaded, and of what else it has opened.
        idle_s: For how long it waits for a command.
    """

    def __init__(
        self, directory: str, lock: int, loaded: Loaded, files: tuple[Signs, Signs], *, idle_s: float
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._loaded = loaded
        self._files = files
        self._idle_s = idle_s
        self._pid = os.getpid()
        self._began = self._used = time.monotonic()
        self._forks: dict[int, socket.socket] = {}
        self._served = self._refused = 0
        self._last_refusal: str | None = None
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._heard, self._told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._listening: socket.socket | None = None
        self._place = -1

    def listen(self) -> None:
        """From now on commands are answered.

        Raises:
            OSError: The socket cannot be made.
        """
        self._place = hold(self._directory)
        if not os.path.samestat(os.stat(LOCK, dir_fd=self._place), os.fstat(self._lock)):
            raise FileNotFoundError(f"{self._directory!r} is another directory than it was")
        os.fchdir(self._place)  # so its path is short
        with suppress(FileNotFoundError):
            os.unlink(SOCKET)  # noqa: PTH108 -- a dead standby's: the lock is ours
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        listening.bind(SOCKET)
        os.umask(before)
        listening.listen(_WAITING)
        listening.setblocking(False)
        os.chdir("/")
        self._listening = listening
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started it may have held some back
        signal.set_wakeup_fd(self._wake)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def serve(self) -> "Fork | None":
        """Answer until the end; in each fork, what it is to do."""
        while self._listening is not None or self._forks:
            poll = select.poll()
            for each in (self._woken, self._heard):
                poll.register(each, select.POLLIN)
            if self._listening is not None:
                poll.register(self._listening.fileno(), select.POLLIN)
            ready = {number for number, _ in poll.poll(self._wait_ms())}
            self._hear()
            self._reap()
            listening = self._listening
            if listening is not None and listening.fileno() in ready and (fork := self._answer(listening)):
                return fork
            if not self._forks and time.monotonic() - self._used >= self._idle_s:
                self._stop()
        return None

    def _wait_ms(self) -> float | None:
        if self._forks or self._listening is None:
            return None
        return min(_LOOK_S, max(0.0, self._used + self._idle_s - time.monotonic())) * 1000 + 1

    def _note(self, number: int, _frame: object) -> None:
        if number == signal.SIGCHLD or os.getpid() != self._pid:  # a fork has yet to forget this
            return
        self._stop()
        if number == signal.SIGINT:
            for pid in self._forks:
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # one that was put aside, too

    def _stop(self) -> None:
        """Answer nobody any more; another standby may start. What runs is waited for."""
        if self._listening is not None:
            with suppress(OSError):
                os.unlink(SOCKET, dir_fd=self._place)
            self._listening.close()
            self._listening = None
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _hear(self) -> None:
        """What forks tell of themselves, a line each."""
        for number in (self._woken, self._heard):
            try:
                told = os.read(number, _TOLD_BYTES)
            except BlockingIOError:
                continue
            for line in told.splitlines() if number == self._heard else ():
                if line == _GOING.encode():
                    self._served += 1
                    self._used = time.monotonic()
                else:
                    self._refuse(line.decode("utf-8", "replace"))

    def _refuse(self, why: str) -> None:
        self._refused += 1
        self._last_refusal = why

    def _reap(self) -> None:
        while self._forks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._used = time.monotonic()
            if (connection := self._forks.pop(pid, None)) is not None:
                with suppress(OSError):  # nobody waits for it any more
                    connection.send(STATUS + status.to_bytes(4, "little"), socket.MSG_DONTWAIT)
                connection.close()

    def _answer(self, listening: socket.socket) -> "Fork | None":
        """Fork for the next in the queue. In the fork: what it is to do."""
        try:
            connection, _ = listening.accept()
        except OSError:  # it has gone again
            return None
        if peer(connection)[1] != os.geteuid() or len(self._forks) >= _MOST_FORKS:
            connection.close()
            return None
        if self._are_changed():
            connection.close()
            self._stop()
            return None
        told = json.dumps(self._document()).encode()
        try:
            pid = os.fork()
        except OSError:
            connection.close()
            return None
        if pid:
            self._forks[pid] = connection
            return None
        return Fork(connection, self._told, self._loaded, told)

    def _are_changed(self) -> bool:
        try:
            return (signs(), again(self._files[1])) != self._files
        except OSError:
            return True

    def _document(self) -> dict[str, Any]:
        return {
            "pid": self._pid,
            "age_s": round(time.monotonic() - self._began),
            "running": len(self._forks),
            "served": self._served,
            "refused": self._refused,
            "last_refusal": self._last_refusal,
            "idle_s": self._idle_s,
        }


class Fork:
    """A fork that has not heard yet what it is to do."""

    def __init__(self, connection: socket.socket, told: int, loaded: Loaded, status: bytes) -> None:
        self._connection = connection
        self._told = told
        self._loaded = loaded
        self._status = status

    def do(self) -> NoReturn:
        """Do it, and end."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        connection = None
        try:
            connection = self._agreed()
        except Gone:
            pass  # it only looked who listens
        except Refused as exc:
            self._refuse(str(exc))
        except (OSError, ValueError, KeyError, TypeError, EOFError) as exc:
            self._refuse(f"{type(exc).__name__}: {exc}")
        if connection is None:
            os._exit(0)
        from ringfence.cli.standby.performing import perform

        code = perform()
        tell_end(connection, code)
        os._exit(code)

    def _agreed(self) -> socket.socket | None:
        """Come to be what the command's process wants; the connection to it, if it then says "go"."""
        pid, asking = greet(self._connection)
        received = hear(self._connection, pid)
        if received is None:
            self._connection.sendall(self._status)
            self._connection.shutdown(socket.SHUT_RDWR)  # nothing follows it
            return None
        see_alike(pid)
        request = understood(received)
        compare(request, self._loaded)
        kept = (self._connection.detach(), self._told, request.life, request.directory, asking)
        number, self._told, life, directory, asking = place_descriptors(request.wanted, kept)
        self._connection = socket.socket(fileno=number)
        self._connection.settimeout(PATIENCE_S)
        become(replace(request, directory=directory), pid)
        if not is_wanted(self._connection, life, asking):
            return None
        self._tell(_GOING)
        os.close(self._told)
        os.close(asking)
        return self._connection

    def _refuse(self, why: str) -> None:
        self._tell(why[:_REASON_CHARS])
        with suppress(OSError):  # it has gone by itself
            self._connection.shutdown(socket.SHUT_RDWR)

    def _tell(self, line: str) -> None:
        with suppress(OSError):  # the standby is gone, or has not come to it: it is a number in its status
            os.write(self._told, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")
