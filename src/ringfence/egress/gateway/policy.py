"""Restricts the provider's features that a request to a model may use. Pure.

A provider's own tools run on its servers, outside of the gate: they search the web, fetch pages, run code and call other
servers with data from the agent. Features that are not granted are removed from the request if it works without them
(clients offer such tools by default); otherwise the request is rejected.
"""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from ringfence.config.egress import ProviderTool
from ringfence.egress.gateway.routes import FORBIDDEN, Api, Rejected, provider_of
from ringfence.frozen import frozen
from ringfence.secret import Provider

Grant = ProviderTool


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIELDS: Mapping[Api, frozenset[str]] = {
    "messages": _words(
        "model messages max_tokens system metadata stop_sequences stream temperature thinking "
        "tool_choice tools top_k top_p cache_control context_management output_config "
        "output_format"
    ),
    "count_tokens": _words(
        "model messages system thinking tool_choice tools cache_control context_management "
        "output_config output_format"
    ),
    "responses": _words(
        "model input instructions tools tool_choice parallel_tool_calls reasoning stream "
        "stream_options include text temperature top_p top_logprobs max_output_tokens "
        "max_tool_calls metadata user safety_identifier prompt_cache_key "
        "prompt_cache_retention truncation verbosity client_metadata"
    ),
    "chat": _words(
        "model messages tools tool_choice parallel_tool_calls functions function_call "
        "response_format stop stream stream_options seed logprobs top_logprobs logit_bias "
        "presence_penalty frequency_penalty temperature top_p max_tokens max_completion_tokens "
        "prediction reasoning_effort verbosity user safety_identifier metadata "
        "prompt_cache_key prompt_cache_retention n"
    ),
}
"""Fields that are forwarded. Others, including ones that do not exist yet, are removed."""

_GRANTED_FIELDS: Mapping[tuple[Api, str], Grant] = {
    ("messages", "mcp_servers"): "mcp",
    ("messages", "container"): "code_execution",
    ("count_tokens", "mcp_servers"): "mcp",
    ("chat", "web_search_options"): "web_search",
}
_KEPT_THERE = {
    "background": "would continue unobserved",
    "previous_response_id": "is about a conversation that the provider keeps",
    "conversation": "is about a conversation that the provider keeps",
    "prompt": "is about a prompt that the provider keeps",
}
"""Fields of `responses` that are rejected: without them the request would mean something else."""

_BETAS: tuple[tuple[str, Grant], ...] = (
    ("code-execution-", "code_execution"),
    ("skills-", "code_execution"),
    ("mcp-client-", "mcp"),
    ("files-api-", "files"),
    ("web-fetch-", "web_fetch"),
    ("web-search-", "web_search"),
)
_SEARCHES_BY_ITSELF = re.compile(r"search-(preview|api)|deep-research")
_TOOLS = b'"tools":'
_TOOL_KINDS: Mapping[str, tuple[tuple[str, Grant | None], ...]] = {
    "anthropic": (
        # The client carries these out, inside; the provider searches among the request's own tools.
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
"""Kinds of tools by the first words of their `type`, and the grant they need. An unknown kind is removed."""

_POINTERS: Mapping[Provider, re.Pattern[bytes]] = {
    "anthropic": re.compile(rb'"(?:source"|container_upload"|tools?":)'),
    "openai": re.compile(rb'_url":|"(?:file_id"|item_reference"|tools?":)'),
}
"""Bytes that make a full check of a body necessary; one expression finds them all in one search."""

_CONTENT = ("messages", "system", "input", "instructions", "prediction")
"""Fields of a body that hold content."""

_ARGUMENTS = dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use"), "input") | dict.fromkeys(
    ("local_shell_call", "shell_call"), "action"
)
"""Fields that hold the arguments of tool calls, by the type of the call."""

_SOURCES_WITHIN = ("base64", "text", "content")
_MOST_VALUES = 2_000_000
_DEEPEST_NAMESPACE = 8
"""Tools in namespaces that are nested deeper are removed."""


@frozen
class ModelPolicy:
    """The models and provider features that may be requested."""

    models: tuple[str, ...] = ()
    """Names of models that may be used; `*` at the end stands for any rest. Empty: any model."""
    grants: frozenset[Grant] = frozenset()

    def allows(self, model: str) -> bool:
        """Whether a model of this name may be used."""
        return not self.models or any(_matches(pattern, model) for pattern in self.models)

    def check_model(self, model: object) -> str:
        """Check that a request's model is allowed, and return its name.

        Raises:
            Rejected: The model is not allowed, or missing.
        """
        if not isinstance(model, str) or not model or len(model) > 200:
            raise Rejected(400, "the request names no model")
        if not self.allows(model):
            raise Rejected(
                FORBIDDEN, f"the model {model!r} is not allowed here; allowed: {', '.join(self.models)}"
            )
        if "web_search" not in self.grants and _SEARCHES_BY_ITSELF.search(model):
            raise Rejected(
                FORBIDDEN, f"the model {model!r} searches the web by itself, which is not granted here"
            )
        return model


def clean(api: Api, body: dict[str, Any], policy: ModelPolicy) -> tuple[str, ...]:
    """Remove fields and tools that are not granted from a body, in place; return their names.

    Raises:
        Rejected: The body has a field that is not granted and cannot be left out.
    """
    stripped = [*_clean_fields(api, body, policy), *_clean_tools(api, body, policy.grants)]
    if api == "responses":
        body["store"] = False
    return tuple(stripped)


def check_pointers(api: Api, encoded: bytes, body: dict[str, Any], policy: ModelPolicy) -> None:
    """Check that no content makes the provider fetch an address or one of its files, or offers its tools.

    Args:
        api: The API whose fields the body has.
        encoded: The body as it will be sent, which is quicker to search than `body`.
        body: The same body, parsed.
        policy: The granted features.

    Raises:
        Rejected: Some content does.
    """
    found = [match[0] for match in islice(_POINTERS[provider_of(api)].finditer(encoded), 2)]
    if not found or (found == [_TOOLS] and "tools" in body):
        return
    for number, block in enumerate(_objects(body)):
        _check_tools_within(api, block, policy.grants)
        grant = _needed(block)
        if grant is not None and grant not in policy.grants:
            raise Rejected(
                FORBIDDEN,
                f"content by {_POINTED[grant]} is not granted here; send the content itself, as base64",
            )
        if number > _MOST_VALUES:
            raise Rejected(413, "the request has too many parts")


def betas(value: str, policy: ModelPolicy) -> str:
    """Return an `anthropic-beta` header without features that are not granted and without the credential's own."""
    words = [word.strip() for word in value.split(",")]
    return ",".join(
        word
        for word in words
        if word and not word.lower().startswith("oauth-") and _is_beta_granted(word, policy)
    )


_POINTED = {"urls": "an address that the provider fetches", "files": "a file that the provider keeps"}


def _matches(pattern: str, model: str) -> bool:
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern


def _is_beta_granted(word: str, policy: ModelPolicy) -> bool:
    return all(grant in policy.grants for start, grant in _BETAS if word.lower().startswith(start))


def _clean_fields(api: Api, body: dict[str, Any], policy: ModelPolicy) -> Iterator[str]:
    if api == "responses":
        for name, why in _KEPT_THERE.items():
            if body.get(name):
                raise Rejected(FORBIDDEN, f"{name!r} {why}, which is not granted here")
    for name in [name for name in body if name not in _FIELDS[api]]:
        grant = _GRANTED_FIELDS.get((api, name))
        if grant is None or grant not in policy.grants:
            del body[name]
            yield name[:50]


def _objects(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all objects in the content of a request, except in the arguments of tool calls."""
    left: list[Any] = [body.get(name) for name in _CONTENT]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(value)
        elif isinstance(value, dict):
            yield value
            arguments = _ARGUMENTS.get(str(value.get("type")))
            left.extend(item for name, item in value.items() if name != arguments)


def _needed(block: dict[str, Any]) -> Grant | None:
    """Return the grant that a block of content needs; None if it needs none."""
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") not in _SOURCES_WITHIN:
        return "files" if source.get("type") == "file" else "urls"
    if block.get("type") in ("container_upload", "item_reference") or block.get("file_id"):
        return "files"
    # Compatible servers know more of these than OpenAI's own: `video_url`, `audio_url`.
    return (
        "urls" if any(_leads_out(value) for name, value in block.items() if name.endswith("_url")) else None
    )


def _leads_out(value: object) -> bool:
    """Whether the provider would fetch this address."""
    address = value.get("url") if isinstance(value, dict) else value
    return isinstance(address, str) and bool(address) and not address.startswith("data:")


# --- tools


def _check_tools_within(api: Api, block: dict[str, Any], grants: AbstractSet[Grant]) -> None:
    """Check tools that are offered in the middle of a conversation, such as Anthropic's `tool_addition`.

    Raises:
        Rejected: One of them is not granted.
    """
    tools = block.get("tools")
    offered = [block.get("tool"), *(tools if isinstance(tools, list) else [])]
    for tool in offered:
        if (
            isinstance(tool, dict)
            and tool.get("type") != "tool_reference"
            and not _is_kept(api, tool, grants)
        ):
            raise Rejected(FORBIDDEN, f"tool {str(tool.get('type'))[:50]!r} in a message is not granted here")


def _clean_tools(api: Api, body: dict[str, Any], grants: AbstractSet[Grant]) -> Iterator[str]:
    """Remove the tools that are not granted from a body, in place; yield their names."""
    yield from _clean_offered(api, body, grants)
    items = body.get("input") if api == "responses" else None
    if not isinstance(items, list):
        return
    # codex offers the tools of some models by an item of the conversation.
    for item in [item for item in items if isinstance(item, dict) and isinstance(item.get("tools"), list)]:
        item["tools"], removed = _split(api, item["tools"], grants)
        yield from map(_name_of, removed)
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
        raise Rejected(400, "`tools` is not a list")
    kept, removed = _split(api, tools, grants)
    if not removed:
        return
    body["tools"] = kept
    names = {str(tool.get("name") or tool.get("type")) if isinstance(tool, dict) else "" for tool in removed}
    choice = body.get("tool_choice")
    if not kept or (isinstance(choice, dict) and str(choice.get("name") or choice.get("type")) in names):
        body.pop("tool_choice", None)
    if not kept:
        del body["tools"]
    yield from map(_name_of, removed)


def _split(api: Api, tools: list[Any], grants: AbstractSet[Grant]) -> tuple[list[Any], list[Any]]:
    """Return the tools that are kept, and those that are removed."""
    kept = [tool for tool in tools if _is_kept(api, tool, grants)]
    return kept, [tool for tool in tools if not _is_kept(api, tool, grants)]


def _is_kept(api: Api, tool: object, grants: AbstractSet[Grant], depth: int = 0) -> bool:
    if not isinstance(tool, dict):
        return False
    provider = provider_of(api)
    kind = tool.get("type")
    if kind is None:
        return provider == "anthropic" and "input_schema" in tool
    if kind == "namespace" and isinstance(tool.get("tools"), list):
        return depth < _DEEPEST_NAMESPACE and all(
            _is_kept(api, inner, grants, depth + 1) for inner in tool["tools"]
        )
    if kind == "shell":
        return _is_local(tool)
    for start, grant in _TOOL_KINDS[provider]:
        if isinstance(kind, str) and kind.startswith(start) and kind[len(start) :][:1] in ("", "_", "-"):
            return grant is None or grant in grants
    return False


def _is_local(tool: dict[str, Any]) -> bool:
    """Whether the client runs the commands of a `shell` tool; otherwise a container of the provider does."""
    environment = tool.get("environment")
    return isinstance(environment, dict) and environment.get("type") == "local"
