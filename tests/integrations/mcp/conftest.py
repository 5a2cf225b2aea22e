"""A workspace, and clients of the official library on a server of ours."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="not installed: pip install 'ringfence[mcp]'")

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
