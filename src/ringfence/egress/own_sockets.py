"""Which TCP ports this process itself listens on, by the kernel's account: nothing inside is led to them."""

import re
from contextlib import suppress
from pathlib import Path

_SOCKET = re.compile(r"socket:\[(\d+)\]")
_LISTENING = "0A"
_ADDRESS, _STATE, _INODE = 1, 3, 9


def own_ports() -> frozenset[int]:
    """Ports that a socket of this process listens on. Where there is no `/proc` it cannot tell, and says none."""
    inodes = _own_inodes()
    return frozenset(
        int(row[_ADDRESS].rpartition(":")[2], 16)
        for row in _rows()
        if row[_STATE] == _LISTENING and row[_INODE] in inodes
    )


def _own_inodes() -> frozenset[str]:
    found = set()
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                match = _SOCKET.fullmatch(str(entry.readlink()))
                if match is not None:
                    found.add(match[1])
    return frozenset(found)


def _rows() -> list[list[str]]:
    rows = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            rows += [line.split() for line in Path("/proc/self/net", table).read_text().splitlines()[1:]]
    return rows
