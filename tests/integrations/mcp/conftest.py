"""A workspace, and clients of the official library on a server of ours.

Servers are forked from a process that has their imports behind it (`tests.forked`); tests/integrations/clients starts
them as clients do.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="not installed: pip install 'ringfence[mcp]'")

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent
from tests import forked
from tests.forked import Forked

COMMAND = (sys.executable, "-m", "ringfence")
_RELAY = 'cat "$1" & cat > "$2"; wait'
"""What a client starts: it connects the client with a server by two named pipes, of which the first leads out."""


class Caller:
    """Calls tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ok(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that works; return its result."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that refuses; return its one sentence."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.content
        (block,) = result.content
        assert isinstance(block, TextContent)
        assert "\n" not in block.text
        return block.text


Connect = Callable[..., AbstractAsyncContextManager[Caller]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory with one file."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "hello.txt").write_text("hello\n")
    return place


def names_in(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def relayed(folder: Path, *arguments: str) -> Iterator[tuple[StdioServerParameters, Callable[[], None]]]:
    """Start a server at the far end of two named pipes.

    Yields:
        What a client starts to speak with it, and what to call once the client has spoken with it.
    """
    pipes = [folder / name for name in ("out", "in")]
    for pipe in pipes:
        os.mkfifo(pipe)
    with ExitStack() as ours, ExitStack() as both:
        for pipe in (
            pipes
        ):  # Without this, to open one end would wait for the other, and reading would be at its end.
            both.enter_context(pipe.open("r+b", buffering=0))
        out, into = ours.enter_context(pipes[0].open("wb")), ours.enter_context(pipes[1].open("rb"))
        server = Forked[bytes]([*COMMAND, "mcp", *arguments], stdin=into, stdout=out)
        ours.close()
        try:
            words = ["-c", _RELAY, "sh", *map(str, pipes)]
            yield StdioServerParameters(command="sh", args=words, env=dict(os.environ)), both.close
            both.close()
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.wait()


@pytest.fixture
def connect(workspace: Path, tmp_path: Path) -> Connect:
    """Start a server on the workspace, and connect a client to it over stdio."""
    numbers = itertools.count()

    @asynccontextmanager
    async def open_client(*options: str, mode: str = "auto") -> AsyncIterator[Caller]:
        folder = tmp_path / f"pipes-{next(numbers)}"
        folder.mkdir()
        with relayed(folder, "-C", str(workspace), *options) as (relay, leave_pipes):
            async with Client(stdio_client(relay), mode=mode) as client:
                leave_pipes()
                yield Caller(client)

    return open_client


class RawClient:
    """A client that writes lines, so that they can be anything."""

    def __init__(self, *arguments: str) -> None:
        self.process = Forked[bytes](
            [*COMMAND, "mcp", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._number = 0

    def send(self, line: bytes) -> None:
        """Write a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Read a line, which is a message."""
        assert self.process.stdout is not None
        message = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return dict(message)

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a request and return its response."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters}
        self.send(json.dumps(message).encode())
        response = self.receive()
        assert response["id"] == self._number
        return response

    def begin(self, revision: str, name: str = "raw") -> dict[str, Any]:
        """Do the handshake of the older revisions."""
        client = {"name": name, "version": "1"}
        response = self.request("initialize", protocolVersion=revision, capabilities={}, clientInfo=client)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return response

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that works."""
        result = self.request("tools/call", name=tool, arguments=arguments)["result"]
        assert not result.get("isError"), result
        return dict(json.loads(result["content"][0]["text"]))

    def end(self) -> int:
        """End the session; return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)


@pytest.fixture
def raw(workspace: Path) -> Iterator[RawClient]:
    """A client without a library."""
    client = RawClient("-C", str(workspace))
    yield client
    client.process.kill()
    client.process.wait()
    for stream in (client.process.stdin, client.process.stdout, client.process.stderr):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


async def ringfence(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it prints."""
    command = partial(forked.run, [*COMMAND, *arguments], stdin=subprocess.DEVNULL, timeout=60)
    done = await anyio.to_thread.run_sync(command)
    return done.returncode, done.stdout + done.stderr
