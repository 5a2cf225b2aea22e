"""The Chat Completions API of OpenAI. It has no form for thinking: that is left out."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from ringfence.events import JSONObject
from ringfence.model.scripted.dialect import (
    CREATED,
    SPEAKERS,
    OpenAIDialect,
    ParsedRequest,
    Refusal,
    Reply,
    Utterance,
    encode,
    encode_event,
    missing_parameter,
    openai_usage,
    text_of,
)
from ringfence.model.scripted.script import Malformed, StreamError

_NOT_JSON = '{"object": "chat.completion.chunk", "choices":'
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


class ChatDialect(OpenAIDialect):
    """`POST /v1/chat/completions`."""

    path: ClassVar[str] = "/v1/chat/completions"

    def check(self, body: Any) -> Refusal | None:
        """Return 400 with the API's message."""
        if not isinstance(body, dict):
            return Refusal(400, "We could not parse the JSON body of your request.")
        if not isinstance(body.get("model"), str):
            return Refusal(400, "you must provide a model parameter")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            return missing_parameter("messages")
        for index, item in enumerate(messages):
            if not isinstance(item, dict) or item.get("role") not in SPEAKERS:
                param = f"messages[{index}].role"
                message = f"Invalid value for '{param}'. Supported values: {', '.join(SPEAKERS)}."
                return Refusal(400, message, code="invalid_value", param=param)
        return _broken_conversation(messages)

    def parse(self, body: JSONObject) -> ParsedRequest:
        """Parse a request, in which the results of tools are messages of their own."""
        messages = body["messages"]
        functions = [tool.get("function") for tool in body.get("tools") or [] if isinstance(tool, dict)]
        names = (str(function.get("name")) for function in functions if isinstance(function, dict))
        utterances = (Utterance(SPEAKERS[item["role"]], text_of(item.get("content"))) for item in messages)
        return ParsedRequest(body, tuple(utterances), dict.fromkeys(names, "function"), len(messages))

    def reply_body(self, reply: Reply) -> JSONObject:
        """Return a completion with one choice."""
        blocks = reply.blocks
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
        message: JSONObject = {
            "role": "assistant",
            "content": "".join(texts) if texts else None,
            "refusal": None,
            "annotations": [],
        }
        if calls:
            message["tool_calls"] = calls
        reason = reply.stop_reason
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISHES.get(reason, reason),
        }
        return {
            "id": f"chatcmpl-scripted-{reply.stem}",
            "object": "chat.completion",
            "created": CREATED,
            "model": reply.request.body["model"],
            "choices": [choice],
            "usage": openai_usage(reply, "prompt", "completion"),
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
        }

    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """Yield chunks, one with the usage where the request wants it, and `[DONE]`."""
        options = reply.request.body.get("stream_options")
        wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        head = {key: body[key] for key in ("id", "created", "model", "service_tier", "system_fingerprint")}
        head["object"] = "chat.completion.chunk"
        if wants_usage:
            head["usage"] = None
        (choice,) = body["choices"]
        for delta in _deltas(choice["message"], reply):
            yield _frame({**head, "choices": [_chunk(delta, None)]})
        yield _frame({**head, "choices": [_chunk({}, choice["finish_reason"])]})
        if wants_usage:
            yield _frame({**head, "choices": [], "usage": body["usage"]})
        yield encode_event("", b"[DONE]")

    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:  # noqa: ARG002  # the contract's
        """Return an error in place of a chunk, or a chunk that is not JSON."""
        if isinstance(fault, Malformed):
            return encode_event("", (fault.data or _NOT_JSON).encode())
        kind = fault.type or "server_error"
        return _frame({"error": {"message": fault.message, "type": kind, "param": None, "code": None}})


def _calls_of(item: JSONObject) -> list[JSONObject]:
    """Return the tool calls of a message."""
    return [call for call in item.get("tool_calls") or [] if isinstance(call, dict)]


def _broken_conversation(messages: list[JSONObject]) -> Refusal | None:
    open_calls: list[str] = []
    for index, item in enumerate(messages):
        if item["role"] == "tool":
            call = str(item.get("tool_call_id"))
            if call not in open_calls:
                message = (
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
                )
                return Refusal(400, f"Invalid parameter: {message}", param=f"messages[{index}].role")
            open_calls.remove(call)
            continue
        if open_calls:
            return _unanswered(open_calls)
        if item["role"] == "assistant":
            open_calls = [str(call.get("id")) for call in _calls_of(item)]
    return _unanswered(open_calls) if open_calls else None


def _unanswered(calls: list[str]) -> Refusal:
    message = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(calls)}"
    )
    return Refusal(400, message, param="messages")


def _call(block: JSONObject) -> JSONObject:
    function = {"name": block["name"], "arguments": encode(block["input"]).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def _deltas(message: JSONObject, reply: Reply) -> Iterator[JSONObject]:
    text = message["content"]
    yield {"role": "assistant", "content": None if text is None else "", "refusal": None}
    for piece in reply.pieces(text or ""):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in reply.pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(delta: JSONObject, finish_reason: str | None) -> JSONObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _frame(chunk: JSONObject) -> bytes:
    return encode_event("", encode(chunk))


CHAT: Final = ChatDialect()
