"""The contract of tools that api agents call."""

import re
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ringfence.config.units import Seconds
from ringfence.errors import UsageError
from ringfence.events import Emit, JSONObject
from ringfence.frozen import frozen
from ringfence.sandbox import Sandbox


@frozen
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: JSONObject
    """JSON Schema (draft 2020-12) of the input."""


@frozen
class ToolCall:
    """One call as the model wrote it, before any check."""

    id: str
    name: str
    arguments: Any
    """A JSON object if the model wrote a valid call; otherwise any JSON value."""


@frozen
class ToolResult:
    """The result of a call. A tool that fails returns a result with `is_error`; it does not raise.

    `content` holds nothing that differs between identical runs: no durations, no process ids, no random names.
    """

    content: str
    is_error: bool = False


@frozen
class ToolContext:
    """The sandbox and the run's facilities that a tool may use during a call."""

    sandbox: Sandbox
    call_id: str
    emit: Emit | None = None
    """Emits live events, such as output; None if no one watches."""


ToolKey = Literal["tools.allow", "tools.deny", "tools.permit"]
"""The keys of the configuration that name tools of the agent."""


class UnknownTool(UsageError):
    """A tool is allowed or denied that the agent does not have.

    Args:
        reason: What is wrong with the name, and the next step.
        key: The key of the configuration that names the tool.
    """

    def __init__(self, reason: str, *, key: ToolKey) -> None:
        self.reason = reason
        self.key = key
        flag = f"--{key.removeprefix('tools.')}-tool"
        super().__init__(f"{flag}, {key}: {reason}")


class Tool(ABC):
    """One tool. `call` receives input that was already validated against the schema."""

    spec: ToolSpec
    is_read_only: bool = False
    """Whether calls of this tool may run concurrently with each other and with other read-only calls."""
    has_valid_schema: bool = False
    """Whether its schema is known to be a JSON Schema. Other schemas are checked before the first call, by a library
    that takes 40 ms to import."""
    trusts_schema: bool = True
    """Whether the schema comes from outside the sandbox. If not, only its first level is checked on the host, since a
    hostile schema can make a validator run forever."""

    @abstractmethod
    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Carry out one call.

        Raises:
            SandboxDied: The sandbox is gone; the run cannot continue.
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
    """The program and its arguments; paths are those inside the sandbox."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables added to its environment. Never put a secret here, because it would be readable inside the sandbox."""
    cwd: str | None = None
    """Its working directory inside. Default: the workspace."""
    start_timeout_s: Seconds = 30.0
    """The limit for the handshake and the list of its tools together."""
    call_timeout_s: Seconds = 120.0
    """The limit for one call."""
