"""What a user says of an MCP server. Apart from `mcp`, so that saying it needs no MCP installed."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ringfence.config.units import Seconds

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
