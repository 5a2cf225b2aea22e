"""What of a request to a model goes round the sandbox's policy, and what is done about it. Pure.

A provider's own tools run on the provider's side: they search the web, fetch pages, run code and call other servers
with what the agent tells them, where no gate sees it. What the agent can do without is taken out of the request (a
client offers such tools by itself, and works without them); what changes the meaning if it is taken out is refused.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ringfence.egress.gateway.routes import Api, provider_of
from ringfence.egress.gateway.shapes import FORBIDDEN, Denied
from ringfence.egress.gateway.tools import Grant, check_tools_within, clean_tools
from ringfence.frozen import frozen
from ringfence.secret import Provider


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
"""Fields that are passed on. Others, also ones that do not exist yet, are taken out."""

_GRANTED_FIELDS: Mapping[tuple[Api, str], Grant] = {
    ("messages", "mcp_servers"): "mcp",
    ("messages", "container"): "code_execution",
    ("count_tokens", "mcp_servers"): "mcp",
    ("chat", "web_search_options"): "web_search",
}
_KEPT_THERE = {
    "background": "would go on when nobody looks",
    "previous_response_id": "is about a conversation that the provider keeps",
    "conversation": "is about a conversation that the provider keeps",
    "prompt": "is about a prompt that the provider keeps",
}
"""Fields of `responses` that are refused: without them the request would mean something else."""

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
_POINTERS: Mapping[Provider, re.Pattern[bytes]] = {
    "anthropic": re.compile(rb'"(?:source"|container_upload"|tools?":)'),
    "openai": re.compile(rb'_url":|"(?:file_id"|item_reference"|tools?":)'),
}
"""What a body must be looked at for; in one search, as each takes a while."""

_CONTENT = ("messages", "system", "input", "instructions", "prediction")
"""Fields of a body that hold content."""

_ARGUMENTS = dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use"), "input") | dict.fromkeys(
    ("local_shell_call", "shell_call"), "action"
)
"""Of calls of tools, by their type."""

_SOURCES_WITHIN = ("base64", "text", "content")
_MOST_VALUES = 2_000_000


@frozen
class ModelPolicy:
    """What may be asked of models' APIs."""

    models: tuple[str, ...] = ()
    """Names that may be asked for; one that ends in `*` stands for all that begin so. Empty: any."""
    grants: frozenset[Grant] = frozenset()

    def allows(self, model: str) -> bool:
        """Whether a model of this name may be asked."""
        return not self.models or any(_matches(pattern, model) for pattern in self.models)

    def check_model(self, model: object) -> str:
        """The name of a request's model, seen to be allowed.

        Raises:
            Denied: It is not, or none.
        """
        if not isinstance(model, str) or not model or len(model) > 200:
            raise Denied(400, "the request names no model")
        if not self.allows(model):
            raise Denied(
                FORBIDDEN, f"the model {model!r} is not allowed here; allowed: {', '.join(self.models)}"
            )
        if "web_search" not in self.grants and _SEARCHES_BY_ITSELF.search(model):
            raise Denied(
                FORBIDDEN, f"the model {model!r} searches the web by itself, which is not granted here"
            )
        return model


def clean(api: Api, body: dict[str, Any], policy: ModelPolicy) -> tuple[str, ...]:
    """Take out of a body, in place, what is not granted; say what that was.

    Raises:
        Denied: It holds what cannot be left out.
    """
    stripped = [*_clean_fields(api, body, policy), *clean_tools(api, body, policy.grants)]
    if api == "responses":
        body["store"] = False
    return tuple(stripped)


def check_pointers(api: Api, encoded: bytes, body: dict[str, Any], policy: ModelPolicy) -> None:
    """See that no content is fetched by the provider, from an address or from its files, nor offers its tools.

    Args:
        api: Whose words the body uses.
        encoded: The body as it will be sent: quicker to look at than `body`.
        body: The same.
        policy: What is granted.

    Raises:
        Denied: Some is.
    """
    found = [match[0] for match in islice(_POINTERS[provider_of(api)].finditer(encoded), 2)]
    if not found or (found == [_TOOLS] and "tools" in body):
        return
    for number, block in enumerate(_objects(body)):
        check_tools_within(api, block, policy.grants)
        grant = _needed(block)
        if grant is not None and grant not in policy.grants:
            raise Denied(
                FORBIDDEN,
                f"content by {_POINTED[grant]} is not granted here; send the content itself, as base64",
            )
        if number > _MOST_VALUES:
            raise Denied(413, "the request has too many parts")


def betas(value: str, policy: ModelPolicy) -> str:
    """An `anthropic-beta` header without what is not granted, nor the one that belongs to the credential."""
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
                raise Denied(FORBIDDEN, f"{name!r} {why}, which is not granted here")
    for name in [name for name in body if name not in _FIELDS[api]]:
        grant = _GRANTED_FIELDS.get((api, name))
        if grant is None or grant not in policy.grants:
            del body[name]
            yield name[:50]


def _objects(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All objects in the content of a request; arguments of tools are none of it."""
    left: list[Any] = [body.get(name) for name in _CONTENT]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(value)
        elif isinstance(value, dict):
            yield value
            arguments = _ARGUMENTS.get(str(value.get("type")))
            left.extend(each for name, each in value.items() if name != arguments)


def _needed(block: dict[str, Any]) -> Grant | None:
    """What a block of content asks of the provider."""
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
    """Whether the provider would fetch what is named so."""
    address = value.get("url") if isinstance(value, dict) else value
    return isinstance(address, str) and bool(address) and not address.startswith("data:")
