"""What a command in a sandbox came to."""

from collections.abc import Callable
from typing import Literal

from ringfence.frozen import frozen

OnOutput = Callable[[bytes, bool], None]
"""Takes a piece of a command's output, and whether it is of stderr."""

EndedBy = Literal["exit", "signal", "timeout", "cancel", "memory", "output", "pids", "disk"]
"""Why a command is over: it exited; a signal; its deadline; the caller; the memory limit; it flooded us;
or a soft limit on processes or disk."""


@frozen
class ExecResult:
    """The outcome of one command. A failing command is a result, never an exception.

    `stdout` and `stderr` are text decoded as UTF-8 with replacement. Where more came than the limit, head and
    tail are kept and a line between them says how many bytes were cut; `stdout_bytes` and `stderr_bytes` hold
    the same kept bytes undecoded, `stdout_total` and `stderr_total` count all bytes that came.
    """

    argv: tuple[str, ...]
    stdout_bytes: bytes
    stderr_bytes: bytes
    stdout_total: int
    stderr_total: int
    exit_code: int
    """As a shell says it: the code, or 128 + signal. 127: not found, 126: not executable."""
    signal: int | None
    duration_s: float
    ended_by: EndedBy
    refused: tuple[str, ...] = ()
    """What the gate refused, or could not reach, while it ran: each line once, at most 20."""
    is_started: bool = True
    """False: there was no such program, or it could not be run; why is on `stderr`."""

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Whether the command exited by itself with code 0."""
        return self.ended_by == "exit" and self.exit_code == 0

    def in_a_line(self, limit_bytes: int) -> str:
        """What it said on stderr, or else on stdout. Some say why at the end, others at first: both are kept."""
        said = BoundedOutput(limit_bytes)
        said.add((self.stderr or self.stdout).strip().encode())
        return "; ".join(said.value().decode("utf-8", "replace").split("\n"))


class BoundedOutput:
    """Keeps the first and the last bytes of a stream and counts the rest.

    Args:
        limit_bytes: At most so many bytes are kept; half of them from the head.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail += chunk[-self._tail_limit :] if self._tail_limit else b""
            # Trimmed only when twice too long: trimming at each chunk would copy the tail each time.
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: -self._tail_limit or None]

    def value(self) -> bytes:
        """What is kept, with a line between head and tail where bytes were cut."""
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
        cut = self.total - len(self._head) - len(tail)
        marker = f"\n[... {cut} bytes cut ...]\n".encode() if cut else b""
        return bytes(self._head) + marker + tail
