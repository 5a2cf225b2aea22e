"""Streams and descriptors of a fork, as Python and the kernel would have made them for a command of its own."""

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any


def place_descriptors(wanted: Mapping[int, int], kept: Sequence[int]) -> list[int]:
    """Have the descriptors that are wanted at their numbers, and no others but those that are kept.

    Args:
        wanted: For each number the descriptor that is to be there.
        kept: Descriptors of ours.

    Returns:
        The new numbers of those that are kept, beyond all that are wanted.
    """
    above = max((2, *wanted)) + 1
    moved = {number: fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for number, each in wanted.items()}
    ours = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in kept]
    stay = {*moved.values(), *ours}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        number = int(name)
        if number not in stay:
            try:
                os.close(number)
            except OSError:
                continue  # the one that the directory was read by
    for number, each in moved.items():
        os.dup2(each, number, inheritable=True)
        os.close(each)
    return ours


def open_streams(told: Sequence[tuple[str, str, bool] | None]) -> None:
    """Have `sys.stdin`, `sys.stdout` and `sys.stderr` as Python opens them when it starts.

    Args:
        told: Encoding, treatment of errors and whether it is unbuffered, of each; None: it was started without.
    """
    sys.stdin = sys.__stdin__ = _opened(0, "r", told[0])  # type: ignore[assignment, misc]
    sys.stdout = sys.__stdout__ = _opened(1, "w", told[1])  # type: ignore[assignment, misc]
    sys.stderr = sys.__stderr__ = _opened(2, "w", told[2])  # type: ignore[assignment, misc]


def _opened(number: int, mode: str, told: tuple[str, str, bool] | None) -> IO[Any] | None:
    import io

    if told is None:
        return None
    encoding, errors, is_unbuffered = told
    raw: Any = open(  # noqa: SIM115 -- it stays
        number, f"{mode}b", buffering=0 if is_unbuffered else -1, closefd=False
    )
    is_by_line = number == 2 or is_unbuffered or raw.isatty()
    stream = io.TextIOWrapper(
        raw, encoding, errors, newline=None if mode == "r" else "\n",
        line_buffering=is_by_line, write_through=is_unbuffered,
    )  # fmt: skip
    stream.mode = mode  # type: ignore[misc]
    return stream
