"""Promises about connections between processes inside and the host, which share one stream."""

import hashlib
from collections.abc import Mapping
from typing import Any

import anyio

from ringfence.errors import SandboxPortError, UsageError
from ringfence.sandbox import Connection, Sandbox
from ringfence.testing.conformance.check import OpenSandbox, error_of, python, shell

_PATIENCE_S = 30.0
_CALL = """
import hashlib, os, socket, sys, threading
def call(port):
    if not port.isdigit():
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(port)
        return sock
    return socket.create_connection(("127.0.0.1", int(port)))
"""


async def _echo(connection: Connection) -> None:
    """Send received data back, then its end."""
    try:
        while True:
            await connection.send(await connection.receive())
    except anyio.EndOfStream:
        await connection.send_eof()


async def _all_of(connection: Connection) -> bytes:
    pieces = []
    try:
        while True:
            pieces.append(await connection.receive())
    except anyio.EndOfStream:
        return b"".join(pieces)


async def _call(sandbox: Sandbox, where: object, code: str, *, timeout_s: float = 60.0) -> str:
    """Run a script inside with the address to connect to; return its output."""
    result = await python(sandbox, _CALL + code, str(where), timeout_s=timeout_s)
    assert result.ok, result.stderr
    return result.stdout.strip()


async def large_and_exact(open_sandbox: OpenSandbox) -> None:
    """64 MiB pass through a connection and back unchanged, and both sides see the end."""
    code = """
sock, sent, came = call(sys.argv[1]), hashlib.sha256(), hashlib.sha256()
def send():
    for _ in range(64):
        block = os.urandom(2**20)
        sent.update(block)
        sock.sendall(block)
    sock.shutdown(socket.SHUT_WR)
thread = threading.Thread(target=send)
thread.start()
while data := sock.recv(2**18):
    came.update(data)
thread.join()
print(sent.hexdigest() == came.hexdigest(), sent.hexdigest())
"""
    digest = hashlib.sha256()

    async def echo(connection: Connection) -> None:
        try:
            while True:
                data = await connection.receive()
                digest.update(data)
                await connection.send(data)
        except anyio.EndOfStream:
            await connection.send_eof()

    async with open_sandbox() as sandbox, sandbox.listen(echo, port=0) as listener:
        said = await _call(sandbox, listener.port, code)
    assert said == f"True {digest.hexdigest()}"


async def unix_socket(open_sandbox: OpenSandbox) -> None:
    """A socket inside belongs to the sandbox's user alone, works like a port, and is removed with its listener."""
    code = "sock = call(sys.argv[1]); sock.sendall(b'word'); print(sock.recv(9), oct(os.stat(sys.argv[1]).st_mode))"
    async with open_sandbox() as sandbox:
        path = f"{sandbox.workspace}/deep/down/it.sock"
        async with sandbox.listen(_echo, unix=path):
            assert await _call(sandbox, path, code) == "b'word' 0o140600"
            assert (await shell(sandbox, f"test -O {path}")).ok
        with anyio.fail_after(_PATIENCE_S):
            while (await shell(sandbox, f"test -e {path}")).ok:
                await anyio.lowlevel.checkpoint()


async def half_closed(open_sandbox: OpenSandbox) -> None:
    """Each direction ends by itself: data that one side sends after the other's end still arrives."""
    code = """
sock = call(sys.argv[1])
first = sock.recv(100), sock.recv(100)
sock.sendall(b"after your end")
sock.shutdown(socket.SHUT_WR)
print(first)
"""
    heard = []

    async def serve(connection: Connection) -> None:
        await connection.send(b"hello")
        await connection.send_eof()
        heard.append(await _all_of(connection))

    async with open_sandbox() as sandbox, sandbox.listen(serve, port=0) as listener:
        assert await _call(sandbox, listener.port, code) == "(b'hello', b'')"
        with anyio.fail_after(_PATIENCE_S):
            while not heard:
                await anyio.lowlevel.checkpoint()
    assert heard == [b"after your end"]


async def cut_off_by_the_host(open_sandbox: OpenSandbox) -> None:
    """A connection that the host aborts is reset inside, not ended."""
    code = """
try:
    print(call(sys.argv[1]).recv(100))
except ConnectionResetError:
    print("reset")
"""

    async def serve(connection: Connection) -> None:
        connection.reset()

    async with open_sandbox() as sandbox, sandbox.listen(serve, port=0) as listener:
        assert await _call(sandbox, listener.port, code) == "reset"


async def cut_off_from_inside(open_sandbox: OpenSandbox) -> None:
    """A connection that is reset inside does not look like an end to the host."""
    code = """
import struct
sock = call(sys.argv[1])
sock.recv(1)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
sock.close()
"""
    ends = []

    async def serve(connection: Connection) -> None:
        await connection.send(b"x")
        ends.append(await error_of(anyio.BrokenResourceError, connection.receive()))

    async with open_sandbox() as sandbox, sandbox.listen(serve, port=0) as listener:
        await _call(sandbox, listener.port, code)
        with anyio.fail_after(_PATIENCE_S):
            while not ends:
                await anyio.lowlevel.checkpoint()


async def two_hundred(open_sandbox: OpenSandbox) -> None:
    """Each of 200 concurrent connections gets its own bytes."""
    code = """
socks = [call(sys.argv[1]) for _ in range(200)]
for number, sock in enumerate(socks):
    sock.sendall(b"%d." % number)
print(sum(sock.recv(9) == b"%d." % number for number, sock in enumerate(socks)))
"""
    async with open_sandbox() as sandbox, sandbox.listen(_echo, port=0) as listener:
        assert await _call(sandbox, listener.port, code) == "200"


async def too_many(open_sandbox: OpenSandbox) -> None:
    """Connections beyond a listener's limit are refused at once; when one ends, another is accepted."""
    code = """
kept = []
def is_served():
    try:
        sock = call(sys.argv[1])
        if sock.recv(1) != b"x":
            return False
    except ConnectionError:  # some kernels tell already at the call
        return False
    kept.append(sock)
    return True
print([is_served() for _ in range(3)], is_served())
kept.pop().close()
while not is_served():
    pass
"""

    async def serve(connection: Connection) -> None:
        await connection.send(b"x")
        await _all_of(connection)

    async with open_sandbox() as sandbox, sandbox.listen(serve, port=0, limit=3) as listener:
        assert await _call(sandbox, listener.port, code) == "[True, True, True] False"


async def storm(open_sandbox: OpenSandbox) -> None:
    """Commands still run while a process inside opens connections as fast as it can."""
    code = """
print("up", flush=True)
while True:
    try:
        call(sys.argv[1]).close()
    except OSError:
        pass
"""

    async with (
        open_sandbox() as sandbox,
        sandbox.listen(_echo, port=0, limit=5) as listener,
        sandbox.spawn(["python3", "-c", _CALL + code, str(listener.port)]) as process,
    ):
        await anext(process.stdout)
        for _ in range(5):
            assert (await sandbox.run(["true"], timeout_s=_PATIENCE_S)).ok


async def slow_reader(open_sandbox: OpenSandbox) -> None:
    """A connection that is not read blocks its sender, and no other connection."""
    code = """
import threading, time
flooding = call(sys.argv[1])
flooding.sendall(b"f")
def flood():
    try:
        while True:
            flooding.sendall(bytes(2**16))
    except OSError:
        pass
threading.Thread(target=flood, daemon=True).start()
other = call(sys.argv[1])
for _ in range(100):
    other.sendall(b"w")
    assert other.recv(1) == b"w"
print("served", flush=True)
os._exit(0)
"""

    async def serve(connection: Connection) -> None:
        if await connection.receive(1) == b"f":
            await anyio.sleep_forever()
        await connection.send(b"w")
        await _echo(connection)

    async with open_sandbox() as sandbox, sandbox.listen(serve, port=0) as listener:
        assert await _call(sandbox, listener.port, code) == "served"


async def reached_from_the_host(open_sandbox: OpenSandbox) -> None:
    """The host can connect to a server inside, on IPv4 or IPv6."""
    code = """
import socket, sys
family, address = (socket.AF_INET6, "::1") if sys.argv[1] == "6" else (socket.AF_INET, "127.0.0.1")
server = socket.socket(family)
server.bind((address, 0))
server.listen()
print(server.getsockname()[1], flush=True)
sock, _ = server.accept()
sock.sendall(sock.recv(100).upper())
"""
    async with open_sandbox() as sandbox:
        for version in ("4", "6"):
            async with sandbox.spawn(["python3", "-c", code, version]) as process:
                connection = await sandbox.connect(int(await anext(process.stdout)))
                await connection.send(b"word")
                assert await _all_of(connection) == b"WORD"
                await connection.aclose()


async def nobody_there(open_sandbox: OpenSandbox) -> None:
    """Connecting to a port without a listener, and listening on a used one, are errors that say so."""
    async with open_sandbox() as sandbox, sandbox.listen(_echo, port=0) as listener:

        async def listen(where: Mapping[str, Any]) -> None:
            async with sandbox.listen(_echo, **where):
                pass

        taken = await error_of(SandboxPortError, listen({"port": listener.port}))
        assert taken.errno_name == "EADDRINUSE"
        absent = await error_of(SandboxPortError, listen({"unix": "/proc/none/it.sock"}))
        assert absent.errno_name in {"ENOENT", "EACCES", "EPERM"}
        for wrong in ({"port": -1}, {"port": 65_536}, {"unix": "relative"}, {"port": 1, "unix": "/x"}, {}):
            await error_of(UsageError, listen(wrong))
        port = listener.port
        await error_of(UsageError, sandbox.connect(0))
    async with open_sandbox() as sandbox:
        assert (await error_of(SandboxPortError, sandbox.connect(port))).errno_name == "ECONNREFUSED"


async def closed_listener(open_sandbox: OpenSandbox) -> None:
    """When a listener is closed its connections are aborted, its port is free, and the sandbox stays usable."""
    code = """
sock = call(sys.argv[1])
print("up", flush=True)
try:
    print(sock.recv(1), flush=True)
except ConnectionResetError:
    print("reset", flush=True)
"""
    async with open_sandbox() as sandbox:
        async with sandbox.listen(_echo, port=0) as listener:
            process = sandbox.spawn(["python3", "-c", _CALL + code, str(listener.port)])
            running = await process.__aenter__()
            await anext(running.stdout)
        said = b""
        with anyio.fail_after(_PATIENCE_S):
            while b"reset\n" not in said:
                said += await anext(running.stdout)
        await process.__aexit__(None, None, None)
        async with sandbox.listen(_echo, port=listener.port):
            pass


CHECKS = (
    large_and_exact,
    unix_socket,
    half_closed,
    cut_off_by_the_host,
    cut_off_from_inside,
    two_hundred,
    too_many,
    storm,
    slow_reader,
    reached_from_the_host,
    nobody_there,
    closed_listener,
)
"""All checks of this module."""
