"""What an agent is asked to do, besides what its sandbox needs."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.frozen import frozen
from ringfence.job.model_access import ModelAccess
from ringfence.model.price_table import Price
from ringfence.runtime.client.base import Program
from ringfence.runtime.limits import Limits
from ringfence.runtime.options import Options
from ringfence.runtime.session import CarriedSession
from ringfence.tool.base import Tool
from ringfence.tool.mcp_server import McpServer


@frozen
class AgentRequest:
    """What an agent needs, besides its sandbox."""

    prompt: str
    model: str
    """Name of a model, or `scripted:FILE`."""
    limits: Limits = field(default_factory=Limits)
    runtime: str = "api"
    toolset: str | None = None
    """None: `coder`, where the runtime has toolsets."""
    options: Options = field(default_factory=Options)
    program: Program | None = None
    """Of a runtime that is a client."""
    session: CarriedSession | None = None
    """Of a runtime that is a client: held, and kept; None: nothing is kept of it."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    functions: Sequence[Tool] = ()
    sdk_options: Any = None
    """A `ClaudeAgentOptions`, for the runtime `claude-sdk`: hooks and permissions that are decided in this process."""
    mcp_servers: Sequence[McpServer] = ()
    model_policy: ModelPolicy = field(default_factory=ModelPolicy)
    """What may be asked of models."""
    model_access: ModelAccess | None = None
    """What the gateway is made of; None: of the fields above, for a model that needs no credential."""
    conversation: tuple[dict[str, Any], ...] = ()
