"""Tools of api agents: the toolsets `operator` and `coder`, the user's functions, and MCP servers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.tool.base import McpServer, Tool, ToolCall, ToolContext, ToolResult, ToolSpec
    from ringfence.tool.function import FunctionTool, tool
    from ringfence.tool.toolset import Toolset, open_toolset, toolset_names

__all__ = [
    "FunctionTool",
    "McpServer",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "ToolSpec",
    "Toolset",
    "open_toolset",
    "tool",
    "toolset_names",
]

_MODULES = {
    "FunctionTool": "function",
    "McpServer": "base",
    "Tool": "base",
    "ToolCall": "base",
    "ToolContext": "base",
    "ToolResult": "base",
    "ToolSpec": "base",
    "Toolset": "toolset",
    "open_toolset": "toolset",
    "tool": "function",
    "toolset_names": "toolset",
}


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is first used, so that `ringfence --help` loads fewer packages."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
