"""The contract of a tool: what an api agent may do."""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ringfence.config.units import Seconds
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
    has_valid_schema: bool = False
    """Whether its schema is known to be a JSON Schema. Others are checked before the first call, by a library that takes
    40 ms to import."""
    trusts_schema: bool = True
    """False where the schema comes from inside the fence: then only its first level is checked on the host,
    since a hostile schema can make a validator run for ever."""

    @abstractmethod
    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            SandboxDied: The sandbox is gone; the run cannot go on.
        """


_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name an MCP server; use up to 32 letters, digits, - and single _, like git_hub"
        )
    return name


class McpServer(BaseModel):
    """A server that speaks MCP over stdio. It runs inside the sandbox, without a network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_checked_name)]
    """Its tools are named `name__tool`."""
    command: Annotated[tuple[str, ...], Field(min_length=1)]
    """Program and arguments, as they are inside the sandbox."""
    env: dict[str, str] = Field(default_factory=dict)
    """Added to its environment. Never put a secret here: it would be inside the fence."""
    cwd: str | None = None
    """Its directory inside. Default: the workspace."""
    start_timeout_s: Seconds = 30.0
    """For the handshake and the list of its tools, together."""
    call_timeout_s: Seconds = 120.0
    """For one call."""
