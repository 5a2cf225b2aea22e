"""OpenTelemetry's conventions for generative AI: its names, and what of our events goes under them.

The names are those of https://github.com/open-telemetry/semantic-conventions-genai, which may still change: nothing
else in ringfence knows them. What models and tools said is `content`, which nobody gets who has not asked for it.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from ringfence.events import (
    ModelExchanged,
    ModelReplied,
    SandboxCreated,
    ToolCalled,
    ToolReturned,
    Usage,
    VerificationEnded,
)

Attributes = dict[str, str | int | float | bool | list[str]]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_WRITTEN_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"

_NAME = 256
_CONTENT = 16 * 1024
_HTTP_ERRORS = 400


@dataclass(frozen=True)
class Told:
    """A span as an event tells of it when it is over."""

    name: str
    duration_ms: float
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None
    """A class of errors, few in number; None: it went well."""
    is_client: bool = False
    """Whether another service did it."""


def of_run(*, agent: str, model: str, provider: str) -> tuple[str, Attributes]:
    """A run of an agent, as it begins: the span's name and attributes."""
    attributes: Attributes = {
        OPERATION: "invoke_agent",
        PROVIDER: provider,
        AGENT_NAME: agent,
        REQUEST_MODEL: name_of_model(model),
    }
    return f"invoke_agent {agent}", attributes


def of_reply(event: ModelReplied, *, model: str, provider: str, with_content: bool) -> Told:
    """A request of an agent's own loop."""
    attributes = _chat(model, provider, event.model, event.usage)
    attributes |= {RESPONSE_ID: clean(event.message_id), FINISH_REASONS: [clean(event.stop_reason)]}
    if with_content:
        message = {
            "role": "assistant",
            "parts": [_part(block) for block in event.content],
            "finish_reason": event.stop_reason,
        }
        attributes[OUTPUT_MESSAGES] = _json([message])
    return Told(f"chat {name_of_model(model)}", event.duration_ms, attributes, is_client=True)


def of_exchange(event: ModelExchanged, *, model: str, provider: str) -> Told:
    """A request that something inside made through the gateway."""
    failed = str(event.status) if event.status >= _HTTP_ERRORS else "no_answer" if not event.status else None
    name = clean(model or event.model)
    return Told(
        f"chat {name}",
        event.duration_ms,
        _chat(name, provider, event.model, event.usage),
        error=failed,
        is_client=True,
    )


def of_tool(called: ToolCalled, returned: ToolReturned | None, *, with_content: bool) -> Told:
    """A call of a tool; one that did not return was broken off with the run."""
    attributes: Attributes = {
        OPERATION: "execute_tool",
        TOOL_NAME: clean(called.tool),
        TOOL_TYPE: "function",
        TOOL_CALL_ID: clean(called.call_id),
    }
    if with_content:
        attributes[TOOL_ARGUMENTS] = _json(called.arguments)
        if returned is not None:
            attributes[TOOL_RESULT] = clean(returned.content, _CONTENT)
    error = "interrupted" if returned is None else "tool_error" if returned.is_error else None
    duration_ms = 0.0 if returned is None else returned.duration_ms
    return Told(f"execute_tool {clean(called.tool)}", duration_ms, attributes, error=error)


def of_sandbox(event: SandboxCreated) -> Told:
    """A sandbox that was started. The conventions have no names for that: these are ours."""
    attributes: Attributes = {
        "ringfence.sandbox.id": event.sandbox_id,
        "ringfence.sandbox.backend": event.backend,
        "ringfence.sandbox.purpose": event.purpose,
    }
    if event.image is not None:
        attributes["ringfence.sandbox.image"] = clean(event.image)
    return Told(f"start sandbox {event.backend}", event.started_in_ms, attributes)


def of_verification(event: VerificationEnded) -> Told:
    """The check of a run, in a sandbox of its own."""
    attributes: Attributes = {"ringfence.verification.exit_code": event.exit_code}
    return Told("verify", event.duration_ms, attributes, error=None if event.passed else "check_red")


def of_hook(point: str, number: int, *, kind: str, run_id: str | None) -> tuple[str, Attributes]:
    """A hook around a job: its span's name and attributes; the names are ours."""
    attributes: Attributes = {"ringfence.hook.number": number, "ringfence.hook.type": kind}
    if run_id is not None:
        attributes["ringfence.run.id"] = run_id
    return f"hook {point}", attributes


def used(usage: Usage) -> Attributes:
    """Tokens. Those of the input include what a cache served or took, as the conventions will have it."""
    cached = usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return {
        INPUT_TOKENS: usage.input_tokens + cached,
        OUTPUT_TOKENS: usage.output_tokens,
        CACHE_WRITTEN_TOKENS: usage.cache_creation_input_tokens,
        CACHE_READ_TOKENS: usage.cache_read_input_tokens,
    }


def asked(prompt: str) -> Attributes:
    """The task, as content."""
    return {INPUT_MESSAGES: _json([{"role": "user", "parts": [_text(prompt)]}])}


def name_of_model(model: str) -> str:
    """As it is told: of a scripted model not the file."""
    return "scripted" if model.startswith("scripted:") else clean(model)


def clean(text: str, most: int = _NAME) -> str:
    """Text of an agent so that it can be sent: cut, and without what is no character."""
    return text[:most].encode("utf-8", "replace").decode()


def _chat(model: str, provider: str, answered: str, usage: Usage) -> Attributes:
    attributes: Attributes = {
        OPERATION: "chat",
        PROVIDER: provider,
        REQUEST_MODEL: name_of_model(model),
        **used(usage),
    }
    if answered:
        attributes[RESPONSE_MODEL] = name_of_model(answered)
    return attributes


def _part(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "tool_use":
        call = {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        return {"type": "tool_call", **call}
    if kind == "thinking":
        return {"type": "reasoning", "content": clean(str(block.get("thinking", "")), _CONTENT)}
    return _text(str(block.get("text", ""))) if kind == "text" else {"type": str(kind)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": clean(text, _CONTENT)}


def _json(value: Any) -> str:
    """JSON, or its beginning."""
    return clean(json.dumps(value, ensure_ascii=True, default=str), 4 * _CONTENT)
