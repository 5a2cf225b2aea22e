"""Defines the result of a command in a sandbox, and collects its output within bounds."""

from collections.abc import Callable
from typing import Literal

from ringfence.frozen import frozen

OnOutput = Callable[[bytes, bool], None]
"""Called with each piece of a command's output, and whether it is from stderr."""

EndedBy = Literal["exit", "signal", "timeout", "cancel", "memory", "output", "pids", "disk"]
"""Why a command ended: it exited; a signal; its timeout; the caller; the memory limit; too much output;
or a soft limit on processes or disk."""


@frozen
class ExecResult:
    """The outcome of one command. A failing command is a result, never an exception.

    `stdout` and `stderr` are text decoded as UTF-8 with replacement. Of output beyond the limit, head and tail are
    kept and a line between them says how many bytes were cut; `stdout_bytes` and `stderr_bytes` are the same bytes
    undecoded, `stdout_total` and `stderr_total` count all bytes that were written.
    """

    argv: tuple[str, ...]
    stdout_bytes: bytes
    stderr_bytes: bytes
    stdout_total: int
    stderr_total: int
    exit_code: int
    """The exit code as a shell reports it: the code, or 128 + signal. 127: not found, 126: not executable."""
    signal: int | None
    duration_s: float
    ended_by: EndedBy
    refused: tuple[str, ...] = ()
    """Requests that the gate refused or could not forward while the command ran: each line once, at most 20."""
    is_started: bool = True
    """False: there is no such program, or it could not be run; `stderr` gives the reason."""

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

    def excerpt(self, limit_bytes: int) -> str:
        """Head and tail of stderr, or else of stdout, in one line: programs give the reason first or last."""
        kept = BoundedOutput(limit_bytes)
        kept.add((self.stderr or self.stdout).strip().encode())
        return "; ".join(kept.value().decode("utf-8", "replace").split("\n"))

    @classmethod
    def not_started(cls, argv: tuple[str, ...], message: str, *, is_absent: bool) -> "ExecResult":
        """The result of a command that could not be started, with the exit code and message that a shell gives."""
        text = f"ringfence: {message}\n".encode("utf-8", "replace")
        return cls(
            argv, b"", text, 0, len(text), 127 if is_absent else 126, None, 0.0, "exit", is_started=False
        )


class BoundedOutput:
    """Keeps the first and the last bytes of a stream and counts the rest.

    Args:
        limit_bytes: How many bytes are kept, half of them from the head.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Append bytes."""
        self.total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail += chunk[-self._tail_limit :] if self._tail_limit else b""
            # Trimmed only when it is twice too long, as each trimming copies the tail.
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: -self._tail_limit or None]

    def value(self) -> bytes:
        """The bytes that were kept, with a line between head and tail if some were cut."""
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
        cut = self.total - len(self._head) - len(tail)
        marker = f"\n[... {cut} bytes cut ...]\n".encode() if cut else b""
        return bytes(self._head) + marker + tail


class CommandOutput:
    """Collects the output of a running command within bounds.

    Args:
        limit_bytes: Kept of stdout and of stderr each.
        flood_limit_bytes: More than this from one stream is a flood.
        on_output: Called with each piece.
    """

    def __init__(self, limit_bytes: int, flood_limit_bytes: int, on_output: OnOutput | None) -> None:
        self.stdout = BoundedOutput(limit_bytes)
        self.stderr = BoundedOutput(limit_bytes)
        self.is_flood = False
        self._flood_limit = flood_limit_bytes
        self._on_output = on_output

    def add(self, chunk: bytes, *, is_stderr: bool) -> bool:
        """Append bytes; return whether they make it a flood, which is reported once."""
        output = self.stderr if is_stderr else self.stdout
        output.add(chunk)
        if self._on_output is not None:
            self._on_output(chunk, is_stderr)
        if self.is_flood or output.total <= self._flood_limit:
            return False
        self.is_flood = True
        return True
