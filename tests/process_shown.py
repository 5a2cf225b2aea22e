"""Has `/proc/PID/cmdline` and `environ` of a fork say what they would say of a program that was started.

The kernel reads both from the memory where the first program of the process found them, so the fork writes there. The
room is what that program was given: see the two constants.
"""

import ctypes
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOM_FOR_WORDS = "." * 4096
"""A last argument for the program that forks."""
ROOM_FOR_ENVIRONMENT = {"ROOM": "." * 65536}
"""A variable for it."""
_ARG_START = 48 - 3
"""proc_pid_stat(5), counted from the state on; the next three are `arg_end`, `env_start` and `env_end`."""


def show(words: Iterable[str], environment: Mapping[str, str]) -> None:
    """Show these as this process's own, as far as there is room; nothing may use the former ones any more."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    words_start, words_end, environment_start, environment_end = map(int, fields[_ARG_START : _ARG_START + 4])
    _fill(words_start, words_end, words)
    _fill(environment_start, environment_end, (f"{name}={value}" for name, value in environment.items()))


def _fill(start: int, end: int, strings: Iterable[str]) -> None:
    size = end - start
    content = b"".join(string.encode(errors="surrogateescape") + b"\0" for string in strings)[: size - 1]
    ctypes.memmove(start, content.ljust(size, b"\0"), size)
