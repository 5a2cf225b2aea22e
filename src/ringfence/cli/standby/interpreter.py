"""How Python was started: what a fork has from the standby, and a command of its own would have from its start."""

import os
import sys

import ringfence

_PREFIXES = (b"PYTHON", b"LC_", b"LD_", b"OPENSSL_", b"SSL_", b"GLIBC_", b"MALLOC_")
_NAMES = (b"LANG", b"LANGUAGE")


def interpreter(path: list[str]) -> tuple[object, ...]:
    """What has to be the same in both, as plain values.

    Args:
        path: Where modules come from, without the directory that Python puts first by itself.
    """
    flags = tuple(map(int, sys.flags))
    return (
        (sys.executable, sys.prefix, sys.version, os.path.dirname(ringfence.__file__)),  # noqa: PTH120
        (flags, tuple(sys.warnoptions), repr(sorted(sys._xoptions.items()))),
        _personality(),
        (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), tuple(path)),
    )


def _personality() -> bytes:
    """How the kernel runs this process, as setarch(8) sets it; of another one it may be nobody's to see."""
    try:
        with open("/proc/self/personality", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def own_path() -> list[str]:
    """`sys.path` without the directory that Python puts first by itself (`-P` keeps it from that)."""
    return sys.path[0 if sys.flags.safe_path else 1 :]


def decisive(environment: dict[bytes, bytes], read: frozenset[bytes]) -> dict[bytes, bytes]:
    """The variables that have an effect on what is loaded, and cannot be changed afterwards.

    Args:
        environment: Of a process.
        read: Names that were asked for while everything was loaded.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in read or name in _NAMES or name.startswith(_PREFIXES)
    }
