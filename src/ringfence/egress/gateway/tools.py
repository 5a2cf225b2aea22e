"""Which tools a request offers to the model, wherever in it that stands, and which of them may stay. Pure."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from ringfence.config.egress import ProviderTool
from ringfence.egress.gateway.routes import Api
from ringfence.egress.gateway.shapes import FORBIDDEN, Denied

Grant = ProviderTool

_TOOLS: Mapping[str, tuple[tuple[str, Grant | None], ...]] = {
    "anthropic": (
        # Carried out by the client, inside; a search among the request's own tools stays with the provider.
        *(
            (name, None)
            for name in ("custom", "bash", "text_editor", "computer", "memory", "tool_search_tool")
        ),
        ("web_search", "web_search"),
        ("web_fetch", "web_fetch"),
        ("code_execution", "code_execution"),
        ("mcp_toolset", "mcp"),
    ),
    "openai": (
        *((name, None) for name in ("function", "custom", "local_shell", "apply_patch", "tool_search")),
        ("web_search", "web_search"),
        ("file_search", "file_search"),
        ("code_interpreter", "code_execution"),
        ("mcp", "mcp"),
        ("image_generation", "image_generation"),
        ("computer", "computer"),
    ),
}
"""Kinds of tools, by the first words of their `type`. An unknown kind is taken out."""


_WORD_END = frozenset("_-")


def check_tools_within(api: Api, block: dict[str, Any], grants: AbstractSet[Grant]) -> None:
    """See to tools that are offered in the middle of a conversation: `tool_addition` of Anthropic's, and the like.

    Raises:
        Denied: One is not granted.
    """
    tools = block.get("tools")
    offered = [block.get("tool"), *(tools if isinstance(tools, list) else [])]
    for tool in offered:
        if (
            isinstance(tool, dict)
            and tool.get("type") != "tool_reference"
            and not _is_kept(api, tool, grants)
        ):
            raise Denied(FORBIDDEN, f"tool {str(tool.get('type'))[:50]!r} in a message is not granted here")


def clean_tools(api: Api, body: dict[str, Any], grants: AbstractSet[Grant]) -> Iterator[str]:
    """Take out of a body, in place, the tools that are not granted; say which."""
    yield from _clean_offered(api, body, grants)
    items = body.get("input") if api == "responses" else None
    if not isinstance(items, list):
        return
    # codex offers the tools of some models by an item of the conversation.
    for item in [each for each in items if isinstance(each, dict) and isinstance(each.get("tools"), list)]:
        gone = [tool for tool in item["tools"] if not _is_kept(api, tool, grants)]
        item["tools"] = [tool for tool in item["tools"] if _is_kept(api, tool, grants)]
        yield from (_name_of(tool) for tool in gone)
    body["input"] = [item for item in items if not _offers_nothing(item)]


def _offers_nothing(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "additional_tools" and not item.get("tools")


def _name_of(tool: object) -> str:
    return f"tool {str(tool.get('type') if isinstance(tool, dict) else tool)[:50]}"


def _clean_offered(api: Api, body: dict[str, Any], grants: AbstractSet[Grant]) -> Iterator[str]:
    tools = body.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list):
        raise Denied(400, "`tools` is not a list")
    kept = [tool for tool in tools if _is_kept(api, tool, grants)]
    gone = [tool for tool in tools if not _is_kept(api, tool, grants)]
    if not gone:
        return
    body["tools"] = kept
    names = {str(tool.get("name") or tool.get("type")) if isinstance(tool, dict) else "" for tool in gone}
    choice = body.get("tool_choice")
    if not kept or (isinstance(choice, dict) and str(choice.get("name") or choice.get("type")) in names):
        body.pop("tool_choice", None)
    if not kept:
        del body["tools"]
    yield from (_name_of(tool) for tool in gone)


def _is_kept(api: Api, tool: object, grants: AbstractSet[Grant]) -> bool:
    if not isinstance(tool, dict):
        return False
    provider = "anthropic" if api in ("messages", "count_tokens") else "openai"
    kind = tool.get("type")
    if kind is None:
        return provider == "anthropic" and "input_schema" in tool
    if kind == "namespace" and isinstance(tool.get("tools"), list):
        return all(_is_kept(api, one, grants) for one in tool["tools"])
    if kind == "shell":
        return _is_local(tool)
    for start, grant in _TOOLS[provider]:
        if (
            isinstance(kind, str)
            and kind.startswith(start)
            and kind[len(start) : len(start) + 1] in ("", *_WORD_END)
        ):
            return grant is None or grant in grants
    return False


def _is_local(tool: dict[str, Any]) -> bool:
    """Whether a `shell` is the client's own; otherwise it runs in a container of the provider."""
    environment = tool.get("environment")
    return isinstance(environment, dict) and environment.get("type") == "local"
