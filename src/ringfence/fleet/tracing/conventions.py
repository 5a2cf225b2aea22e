"""Maps events to spans with the names of OpenTelemetry's conventions for generative AI, version 0.1.0.

The conventions are at https://github.com/open-telemetry/semantic-conventions-genai and may still change, so only this
module and `metrics.py` use their names. Texts of models and tools are *content*, which is recorded on request only.
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
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"

_MAX_NAME = 256
_MAX_TEXT = 16 * 1024
_HTTP_ERRORS = 400


@dataclass(frozen=True)
class EndedSpan:
    """A span of something that has ended."""

    name: str
    duration_ms: float
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None
    """The class of the error, one of few; None if there was none."""
    usage: Usage | None = None
    """The tokens of a request to a model."""


def run_span(*, agent: str, model: str) -> tuple[str, Attributes]:
    """Return the name and the attributes of the span of an agent's run."""
    attributes: Attributes = {
        OPERATION: "invoke_agent",
        AGENT_NAME: agent,
        REQUEST_MODEL: model_name(model),
    }
    return f"invoke_agent {agent}", attributes


def reply_span(event: ModelReplied, *, model: str, provider: str, with_content: bool) -> EndedSpan:
    """Return the span of a model request of the `api` runtime."""
    attributes = _inference_attributes(model, provider, event.model, event.usage)
    attributes |= {RESPONSE_ID: sanitize(event.message_id), FINISH_REASONS: [sanitize(event.stop_reason)]}
    if with_content:
        message = {
            "role": "assistant",
            "parts": [_message_part(block) for block in event.content],
            "finish_reason": event.stop_reason,
        }
        attributes[OUTPUT_MESSAGES] = _json([message])
    return EndedSpan(f"chat {model_name(model)}", event.duration_ms, attributes, usage=event.usage)


def exchange_span(event: ModelExchanged, *, model: str, provider: str) -> EndedSpan:
    """Return the span of a model request that came from the sandbox through the gateway."""
    error = str(event.status) if event.status >= _HTTP_ERRORS else "no_answer" if not event.status else None
    name = sanitize(model or event.model)
    attributes = _inference_attributes(name, provider, event.model, event.usage)
    return EndedSpan(f"chat {name}", event.duration_ms, attributes, error, event.usage)


def tool_span(
    called: ToolCalled, returned: ToolReturned | None, *, agent: str, duration_ms: float, with_content: bool
) -> EndedSpan:
    """Return the span of a tool call; `returned` is None if the run ended before the call did."""
    attributes: Attributes = {
        OPERATION: "execute_tool",
        AGENT_NAME: agent,
        TOOL_NAME: sanitize(called.tool),
        TOOL_TYPE: "function",
        TOOL_CALL_ID: sanitize(called.call_id),
    }
    if with_content:
        attributes[TOOL_ARGUMENTS] = _json(called.arguments)
        if returned is not None:
            attributes[TOOL_RESULT] = sanitize(returned.content, _MAX_TEXT)
    error = "interrupted" if returned is None else "tool_error" if returned.is_error else None
    return EndedSpan(f"execute_tool {sanitize(called.tool)}", duration_ms, attributes, error)


def sandbox_span(event: SandboxCreated) -> EndedSpan:
    """Return the span of the start of a sandbox, for which the conventions have no names."""
    attributes: Attributes = {
        "ringfence.sandbox.id": event.sandbox_id,
        "ringfence.sandbox.backend": event.backend,
        "ringfence.sandbox.purpose": event.purpose,
    }
    if event.image is not None:
        attributes["ringfence.sandbox.image"] = sanitize(event.image)
    return EndedSpan(f"start sandbox {event.backend}", event.started_in_ms, attributes)


def verification_span(event: VerificationEnded) -> EndedSpan:
    """Return the span of a run's check."""
    attributes: Attributes = {"ringfence.verification.exit_code": event.exit_code}
    return EndedSpan("verify", event.duration_ms, attributes, None if event.passed else "check_red")


def hook_span(point: str, number: int, *, kind: str, run_id: str | None) -> tuple[str, Attributes]:
    """Return the name and the attributes of the span of a hook, for which the conventions have no names."""
    attributes: Attributes = {"ringfence.hook.number": number, "ringfence.hook.type": kind}
    if run_id is not None:
        attributes["ringfence.run.id"] = run_id
    return f"hook {point}", attributes


def usage_attributes(usage: Usage) -> Attributes:
    """Return the tokens of a run. Input tokens include those that a cache served or stored."""
    return {INPUT_TOKENS: input_tokens(usage), OUTPUT_TOKENS: usage.output_tokens}


def input_tokens(usage: Usage) -> int:
    """Return the number of input tokens, cached ones included."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def prompt_attributes(prompt: str) -> Attributes:
    """Return the prompt of a run, which is content."""
    return {INPUT_MESSAGES: _json([{"role": "user", "parts": [_text_part(prompt)]}])}


def model_name(model: str) -> str:
    """Return the name of a model without the path of a script."""
    return "scripted" if model.startswith("scripted:") else sanitize(model)


def sanitize(text: str, limit: int = _MAX_NAME) -> str:
    """Return the beginning of a text, without surrogates, which cannot be encoded."""
    return text[:limit].encode("utf-8", "replace").decode()


def _inference_attributes(model: str, provider: str, response_model: str, usage: Usage) -> Attributes:
    attributes: Attributes = {
        OPERATION: "chat",
        PROVIDER: provider,
        REQUEST_MODEL: model_name(model),
        **usage_attributes(usage),
    }
    if usage.cache_creation_input_tokens:
        attributes[CACHE_WRITE_TOKENS] = usage.cache_creation_input_tokens
    if usage.cache_read_input_tokens:
        attributes[CACHE_READ_TOKENS] = usage.cache_read_input_tokens
    if response_model:
        attributes[RESPONSE_MODEL] = model_name(response_model)
    return attributes


def _message_part(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "tool_use":
        call = {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        return {"type": "tool_call", **call}
    if kind == "thinking":
        return {"type": "reasoning", "content": sanitize(str(block.get("thinking", "")), _MAX_TEXT)}
    return _text_part(str(block.get("text", ""))) if kind == "text" else {"type": str(kind)}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": sanitize(text, _MAX_TEXT)}


def _json(value: Any) -> str:
    """Return a value as JSON, or the beginning of the JSON if it is long."""
    return sanitize(json.dumps(value, ensure_ascii=True, default=str), 4 * _MAX_TEXT)
