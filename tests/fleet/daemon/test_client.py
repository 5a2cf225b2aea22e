"""A client of a daemon that is dying."""

import socket
import threading
from pathlib import Path

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.fleet.client import FleetClient, NoDaemon


def _die_while_asked(listener: socket.socket, path: Path) -> threading.Thread:
    """Close a listening socket as soon as a connection waits in it, which is how a killed process ends."""

    def die() -> None:
        waiting = Path("/proc/net/unix")
        while sum(line.endswith(str(path)) for line in waiting.read_text().splitlines()) < 2:
            pass
        listener.close()

    thread = threading.Thread(target=die)
    thread.start()
    return thread


@pytest.mark.parametrize(("method", "expected"), [("get", NoDaemon), ("post", InfrastructureFault)])
def test_a_connection_that_a_dying_daemon_reset_is_no_daemon(
    tmp_path: Path, method: str, expected: type[Exception]
):
    """A request that only reads says that none runs; one that changes something may have been received."""
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = _die_while_asked(listener, path)
        with pytest.raises(expected):
            getattr(FleetClient(path), method)("v1", "status")
        thread.join()
