"""A person at a terminal: types, and sees what is on the screen."""

import copy
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyte

_PRIVATE_SHIFT = 5
_UNKNOWN = re.compile(rb"\x1b\[[<=>][0-9;]*[a-zA-Z]")
"""Sequences that pyte would show as text."""
_ANSWERS = (
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[5n", b"\x1b[0n"),
    (b"\x1b[>q", b"\x1bP>|term(5)\x1b\\"),
    (b"\xc2\x9b21t", b"\x1b]ltitled\x1b\\"),
)

_WELL = b"\x1b[5n"
_QUESTION = re.compile(b"|".join(re.escape(question) for question, _ in _ANSWERS))


class _Screen(pyte.Screen):
    """A screen with another one behind it, as full screen programs use."""

    behind: Any = None

    def set_mode(self, *modes: int, **more: Any) -> None:
        """1049 is the other screen."""
        if more.get("private") and 1049 in modes and self.behind is None:
            self.behind = (copy.deepcopy(dict(self.buffer)), self.cursor.x, self.cursor.y)
            self.erase_in_display(2)
        super().set_mode(*modes, **more)

    def reset_mode(self, *modes: int, **more: Any) -> None:
        """Back to the first."""
        if more.get("private") and 1049 in modes and self.behind is not None:
            buffer, self.cursor.x, self.cursor.y = self.behind
            self.behind = None
            self.buffer.clear()
            self.buffer.update(buffer)
        super().reset_mode(*modes, **more)


class Person:
    """Our end of a terminal, with what it shows. It answers questions as terminals do."""

    def __init__(self, rows: int = 32, columns: int = 100) -> None:
        self.ours, self.theirs = pty.openpty()
        self._screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._process: subprocess.Popen[bytes] | None = None
        self._late = b""
        self.is_slow = False
        """Whether answers come only with the one to the question whether all is well."""
        self.resize(rows, columns)

    def start(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a program whose terminal this is."""

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)

        end = self.theirs
        self._process = subprocess.Popen(
            argv,
            stdin=end,
            stdout=end,
            stderr=end,
            env=dict(env or os.environ),
            cwd=cwd,
            preexec_fn=own_terminal,
        )
        return self._process

    def below(self) -> list[int]:
        """The processes that descend from what was started."""
        return _below(self.shell.pid)

    @property
    def shell(self) -> "subprocess.Popen[bytes]":
        """What was started."""
        assert self._process is not None
        return self._process

    def resize(self, rows: int, columns: int) -> None:
        """Change the terminal's size."""
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)

    def type(self, text: str) -> None:
        """Type."""
        os.write(self.ours, text.encode())

    def see(self, *texts: str, timeout_s: float = 60) -> str:
        """Wait until all of `texts` are on the screen; the screen."""
        return self._until(lambda shown: all(text in shown for text in texts), f"{texts!r}", timeout_s)

    def see_no_more(self, text: str, timeout_s: float = 60) -> str:
        """Wait until `text` is not on the screen any more; the screen."""
        return self._until(lambda shown: text not in shown, f"no {text!r}", timeout_s)

    @property
    def shown(self) -> str:
        """The screen, without what is empty."""
        lines = (line.rstrip() for line in self._screen.display)
        return "\n".join(line for line in lines if line)

    @property
    def is_behind(self) -> bool:
        """Whether a full screen program's screen is shown."""
        return self._screen.behind is not None

    def has_mode(self, number: int) -> bool:
        """Whether a private mode of the terminal is on."""
        return number << _PRIVATE_SHIFT in self._screen.mode

    def leave(self) -> None:
        """Close the terminal's window."""
        os.close(self.theirs)
        os.close(self.ours)
        self.ours = self.theirs = -1

    def close(self) -> None:
        """End what is left."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait()
        if self.ours >= 0:
            self.leave()

    def _until(self, is_met: Callable[[str], bool], what: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while not is_met(self.shown):
            ready, _, _ = select.select([self.ours], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{what} did not come; there is:\n{self.shown}"
            self._take(os.read(self.ours, 65536))
        return self.shown

    def _take(self, output: bytes) -> None:
        for match in _QUESTION.finditer(output):
            self._late += dict(_ANSWERS)[match[0]]
            if not self.is_slow or match[0] == _WELL:
                os.write(self.ours, self._late)
                self._late = b""
        self._stream.feed(_UNKNOWN.sub(b"", output))


def _below(pid: int) -> list[int]:
    """The processes that descend from one."""
    children = []
    for threads in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError):
            children += [int(word) for word in threads.read_text().split()]
    return [each for child in children for each in (child, *_below(child))]
