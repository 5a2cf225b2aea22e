"""A workspace, and clients of the official library on a server of ours."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="not installed: pip install 'ringfence[mcp]'")

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent

COMMAND = str(Path(sys.executable).with_name("ringfence"))


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


@pytest.fixture
def connect(workspace: Path) -> Connect:
    """Start a server on the workspace, and connect a client to it over stdio."""

    @asynccontextmanager
    async def open_client(*options: str, mode: str = "auto") -> AsyncIterator[Caller]:
        server = StdioServerParameters(
            command=COMMAND, args=["mcp", "-C", str(workspace), *options], env=dict(os.environ)
        )
        async with Client(stdio_client(server), mode=mode) as client:
            yield Caller(client)

    return open_client


class RawClient:
    """A client that writes lines, so that they can be anything."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "mcp", *arguments],
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
    done = await anyio.run_process(
        [COMMAND, *arguments], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    return done.returncode, done.stdout.decode()
