"""Which TCP ports this process itself listens on, by the kernel's account: nothing inside is led to them."""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path


def own_ports() -> frozenset[int]:
    """Ports that a socket of this process listens on. Where there is no `/proc` it cannot tell, and says none."""
    try:
        descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return frozenset()
    found = set()
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                port = _listening_port(descriptor)
                found |= {port} if port else set()
    return frozenset(found)


def _listening_port(descriptor: int) -> int | None:
    # The kernel's list of all sockets of the machine takes ten milliseconds to read where there are many.
    with socket.socket(fileno=os.dup(descriptor)) as own:
        if own.family not in (socket.AF_INET, socket.AF_INET6) or own.type != socket.SOCK_STREAM:
            return None
        if not own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        return int(own.getsockname()[1])
