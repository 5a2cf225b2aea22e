"""The filter in front of an engine that keeps nobody from anything."""

import json
import socket
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.proxy import EngineProxy
from ringfence.events import Event

ACCESS = EngineAccess(label="lab=mine", allow=("exec",))


async def answer(request: bytes, said: object, tmp_path: Path) -> bytes:
    """What a process inside is told, where the engine answers with `said` whatever it is asked."""
    body = json.dumps(said).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def engine(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(head + body)

    async def emit(_event: Event) -> None:
        pass

    listener = await anyio.create_unix_listener(tmp_path / "engine.sock")
    proxy = EngineProxy(ACCESS, tmp_path / "engine.sock", sandbox_id="one", emit=emit)
    one, other = socket.socketpair()
    came = b""
    async with (
        listener,
        await SocketStream.from_socket(one) as inside,
        await SocketStream.from_socket(other) as near,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, engine)
        await inside.send(request)
        with anyio.fail_after(10):
            await proxy.serve(near)
            await near.aclose()
            async for piece in inside:
                came += piece
        tasks.cancel_scope.cancel()
    return came


async def test_a_filter_that_the_engine_ignores_is_kept_all_the_same(tmp_path: Path):
    """Of what it lists, only what has the label is shown."""
    mine = {"Id": "1", "Names": ["/mine"], "Labels": {"lab": "mine"}}
    other = {"Id": "2", "Names": ["/other"], "Labels": {"lab": "other"}}
    came = await answer(
        b"GET /containers/json HTTP/1.1\r\nHost: docker\r\n\r\n", [mine, other, "nonsense"], tmp_path
    )
    assert json.loads(came.partition(b"\r\n\r\n")[2]) == [mine]


async def test_no_command_is_passed_on_to_a_container_with_the_hosts_powers(tmp_path: Path):
    """Although its label is the granted one, and commands are granted."""
    powerful = {"Id": "1", "Config": {"Labels": {"lab": "mine"}}, "HostConfig": {"Privileged": True}}
    body = b'{"Cmd": ["id"]}'
    request = b"POST /containers/mine/exec HTTP/1.1\r\nHost: docker\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    came = await answer(request, powerful, tmp_path)
    assert came.startswith(b"HTTP/1.1 403 ")
    assert b"is never forwarded: it is privileged" in came
