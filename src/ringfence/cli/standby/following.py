"""A command's own process while the standby's fork does its work: to the shell it is the command.

Signals are passed on; it stops and goes on with the fork, and ends as that ends. If it is killed, the fork is killed by
the kernel (see `ringfence.cli.standby.life`).
"""

import _signal  # type: ignore[import-not-found]  # the module `signal` takes longer to import than all of this
import _socket
import os
import select
import sys

ENDED, STATUS = b"e", b"s"
"""A fork's last word, with its exit code; the standby's word on how a fork ended, as wait(2) has it."""
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGWINCH", "SIGUSR1", "SIGUSR2", "SIGCONT")
_INFRASTRUCTURE = 75
_PATIENCE_S = 1.0


class Followed:
    """A fork that does the command's work.

    Args:
        process: Descriptor of it (pidfd_open(2)).
        connection: To it, and to the standby.
        go: The word on which it begins.
    """

    def __init__(self, process: int, connection: _socket.socket, go: bytes) -> None:
        self.process = process
        self.connection = connection
        self.go = go

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens if it has ended."""
        try:
            _signal.pidfd_send_signal(self.process, number)
        except OSError:
            return


def follow(fork: Followed) -> int | None:
    """Let it begin and wait for its end; its exit code, or None if it could not begin."""
    kept = _pass_on(fork)
    try:
        fork.connection.sendall(fork.go)
    except OSError:  # it died before: nothing was done
        for number, handler in kept.items():
            _signal.signal(number, handler)
        return None
    ended = select.poll()
    ended.register(fork.process, select.POLLIN)
    while not ended.poll():
        continue
    return _end_as(fork.connection)


def _pass_on(fork: Followed) -> dict[int, object]:
    """From now on signals are the fork's. What this process was told to ignore the fork ignores."""

    def passed(number: int, _frame: object) -> None:
        fork.signal(number)

    def stop(number: int, _frame: object) -> None:
        fork.signal(_signal.SIGSTOP)  # in a session of its own it would not obey the gentler one
        _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # Somebody has us go on; or we were not to stop, having no shell that could have us go on.
        _signal.signal(number, stop)
        fork.signal(_signal.SIGCONT)

    numbers = {getattr(_signal, name): passed for name in _PASSED_ON}
    numbers[_signal.SIGTSTP] = stop
    kept = {number: _signal.getsignal(number) for number in numbers}
    for number, handler in numbers.items():
        if kept[number] != _signal.SIG_IGN:
            _signal.signal(number, handler)
    return kept


def _end_as(connection: _socket.socket) -> int:
    """The exit code of a fork that has ended; if a signal ended it, the same ends this process."""
    said = _last_words(connection)
    if said[:1] == ENDED and len(said) > 1:
        return said[1]
    if said[:1] == STATUS and len(said) > 4:
        code = os.waitstatus_to_exitcode(int.from_bytes(said[1:5], "little"))
        return code if code >= 0 else _die_of(-code)
    sys.stderr.write(
        "ringfence: the process that did this command has died, and so has its standby; see "
        "`ringfence audit ls`, `ringfence loop list` for what it came to\n"
    )
    return _INFRASTRUCTURE


def _last_words(connection: _socket.socket) -> bytes:
    """Of the fork, else of the standby that waits for it; empty if that is gone or does not come to it."""
    said = b""
    connection.settimeout(_PATIENCE_S)
    while not (said[:1] == ENDED and len(said) > 1) and len(said) < 5:
        try:
            more = connection.recv(64)
        except OSError:
            break
        if not more:
            break
        said += more
    return said


def _die_of(number: int) -> int:
    import resource

    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )  # it left its own
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    return 128 + number
