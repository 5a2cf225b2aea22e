"""The SDK's `Transport` over an exchange: its process is in the sandbox, and is not the transport's to start or end.

Imported only after `installed.check_sdk`.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import Transport

from ringfence.runtime.claude_sdk.exchange import Exchange


class ExchangeTransport(Transport):
    """What the SDK reads from and writes to.

    Args:
        exchange: Of the run.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def connect(self) -> None:
        """Nothing: the process is there."""

    async def write(self, data: str) -> None:
        """Pass on a message, which the SDK gives as a line of JSON."""
        await self._exchange.write(json.loads(data))

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The client's control messages."""
        async for message in self._exchange.messages():
            yield message

    async def close(self) -> None:
        """Nothing: whoever started the process ends it."""

    def is_ready(self) -> bool:
        """Always."""
        return True

    async def end_input(self) -> None:
        """Tell the client that nothing more comes."""
        await self._exchange.end_input()
