"""The contract of a tool: what an api agent may do."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.sandbox import Sandbox

JSONObject = dict[str, Any]

Emit = Callable[[Event], Awaitable[None]]
"""Takes an event; returns when it is in the journal ("written before told")."""


@frozen
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: JSONObject
    """JSON Schema (draft 2020-12) of the input."""


@frozen
class ToolCall:
    """One call as the model wrote it; nothing of it is checked yet."""

    id: str
    name: str
    arguments: Any
    """A JSON object if the model did right."""


@frozen
class ToolResult:
    """What a call came to. A tool that fails is a result with `is_error`, never an exception.

    `content` holds nothing that differs from run to run by itself: no durations, no process ids, no random names.
    """

    content: str
    is_error: bool = False


@frozen
class ToolContext:
    """What a tool may use."""

    sandbox: Sandbox
    call_id: str
    emit: Emit | None = None
    """Takes live events, such as output; None: nobody watches."""


class Tool(ABC):
    """One tool. `call` is given input that already fits the schema."""

    spec: ToolSpec
    is_read_only: bool = False
    """Whether calls of it may run beside each other and beside other read-only calls."""
    trusts_schema: bool = True
    """False where the schema comes from inside the fence: then only its first level is checked on the host,
    since a hostile schema can make a validator run for ever."""

    @abstractmethod
    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            SandboxDied: The sandbox is gone; the run cannot go on.
        """
