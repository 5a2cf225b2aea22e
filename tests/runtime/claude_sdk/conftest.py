"""The SDK, where it is installed; and an exchange with nobody inside."""

import importlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from ringfence.events import Event
from ringfence.runtime.claude_sdk.control import Exchange

LACKING = "claude-agent-sdk is not installed: uv sync --group clients"


@pytest.fixture
def sdk() -> Any:
    """The SDK. Skips without it; fails where it must be there."""
    try:
        return importlib.import_module("claude_agent_sdk")
    except ImportError:
        if os.environ.get("TEST_REQUIRES_CLIENTS"):
            pytest.fail(LACKING)
        pytest.skip(LACKING)


@dataclass
class Inside:
    """What the client would get, and what was told, in the order in which it happened."""

    happened: list[Any] = field(default_factory=list)
    exchange: Exchange = field(init=False)
    busy: list[bool] = field(default_factory=list)
    """Whether the client waited for an answer, each time that this may have changed."""

    def __post_init__(self) -> None:
        self.exchange = Exchange(self.tell, lambda: self.busy.append(self.exchange.is_busy))

    async def tell(self, event: Event) -> None:
        self.happened.append(event)

    async def send(self, data: bytes) -> None:
        self.happened.append(json.loads(data))

    async def aclose(self) -> None:
        self.happened.append("closed")

    @property
    def told(self) -> list[Event]:
        """The events."""
        return [each for each in self.happened if isinstance(each, Event)]

    @property
    def sent(self) -> list[Any]:
        """What the client got."""
        return [each for each in self.happened if isinstance(each, dict)]

    async def settle(self) -> None:
        """Let everything be sent that was written; nothing can be written afterwards."""
        await self.exchange.end_input()
        await self.exchange.serve(self)


@pytest.fixture
async def inside(anyio_backend: str) -> AsyncIterator[Inside]:
    """An exchange, and what comes of it."""
    made = Inside()
    yield made
    made.exchange.close()


def request(request_id: str = "r1", /, **asked: Any) -> dict[str, Any]:
    """A question of a client's."""
    return {"type": "control_request", "request_id": request_id, "request": asked}


def answer(request_id: str = "r1", **response: Any) -> dict[str, Any]:
    """An answer of the SDK's."""
    made = {"subtype": "success", "request_id": request_id, "response": response}
    return {"type": "control_response", "response": made}


def tool_call(
    tool: str = "add", *, request_id: str = "r1", call_id: str = "toolu_1", **arguments: Any
) -> Any:
    """A client's call of a tool of the server `host`."""
    params = {"name": tool, "arguments": arguments, "_meta": {"claudecode/toolUseId": call_id}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return request(request_id, subtype="mcp_message", server_name="host", message=message)


def tool_result(text: str, *, is_error: bool = False, request_id: str = "r1") -> Any:
    """What a server answers to it."""
    result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return answer(request_id, mcp_response={"jsonrpc": "2.0", "id": 1, "result": result})


@pytest.fixture
def deadline() -> Any:
    """Whatever waits longer than that has failed."""
    return lambda: anyio.fail_after(20)
