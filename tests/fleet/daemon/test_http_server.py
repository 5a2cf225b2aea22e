"""The shutdown of the daemon's HTTP server, and its signal handlers."""

import signal
import socket
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from starlette.applications import Starlette

from ringfence.fleet.daemon.http_server import serving


@pytest.mark.parametrize("how", ["cancelled", "failed", "left"])
def test_no_connection_outlives_the_server(tmp_path: Path, how: str):
    """When the server's context ends, in whatever way, its clients see the end of their connections."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        anyio.run(partial(_serve, client, tmp_path / "s", how))
        client.setblocking(False)
        assert client.recv(1) == b""
    assert not (tmp_path / "s").exists()


async def _serve(client: socket.socket, path: Path, how: str) -> None:
    try:
        with anyio.CancelScope() as scope:
            async with serving(Starlette(), path):
                await anyio.to_thread.run_sync(_ask, client, path)
                if how == "cancelled":
                    scope.cancel()
                    await anyio.sleep_forever()
                if how == "failed":
                    raise LookupError
    except* LookupError:
        assert how == "failed"


def _ask(client: socket.socket, path: Path) -> None:
    """Request a page and read the answer; the connection stays open."""
    client.connect(str(path))
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = b""
    while b"\r\n\r\nNot Found" not in answer:
        answer += client.recv(4096)


def test_signals_are_the_commands(tmp_path: Path):
    """The server leaves signal handlers as they are, so that a signal still stops the daemon."""

    async def handlers() -> list[object]:
        found: list[object] = []
        async with (
            serving(Starlette(), tmp_path / "served"),
            await anyio.connect_unix(tmp_path / "served") as link,
        ):
            await link.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await link.receive()
            found += [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        return found

    async def check() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT):
            before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
            assert await handlers() == before

    anyio.run(check)
