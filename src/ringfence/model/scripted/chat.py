"""The Chat Completions API of OpenAI. It has no form for thinking: that is left out."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from ringfence.model.scripted.dialect import (
    CREATED,
    OpenAIDialect,
    ParsedRequest,
    Refusal,
    Reply,
    ToolOutput,
    Utterance,
    encode,
    pieces,
    stop_reason,
    text_of,
    usage,
)
from ringfence.model.scripted.script import JSONObject, Malformed, StreamError

_NOT_JSON = '{"object": "chat.completion.chunk", "choices":'
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


_ROLES = ("system", "developer", "user", "assistant", "tool")


def _refusal(body: Any) -> Refusal | None:
    """Why the API would answer 400 to this body; None if it would not."""
    if not isinstance(body, dict):
        return Refusal(400, "We could not parse the JSON body of your request.")
    if not isinstance(body.get("model"), str):
        return Refusal(400, "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Refusal(
            400,
            "Missing required parameter: 'messages'.",
            code="missing_required_parameter",
            param="messages",
        )
    for index, item in enumerate(messages):
        if not isinstance(item, dict) or item.get("role") not in _ROLES:
            message = f"Invalid value for 'messages[{index}].role'. Supported values: {', '.join(_ROLES)}."
            return Refusal(400, message, code="invalid_value", param=f"messages[{index}].role")
    return _broken_conversation(messages)


def _calls_of(item: JSONObject) -> list[JSONObject]:
    """The tool calls of a message."""
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


class ChatDialect(OpenAIDialect):
    """`POST /v1/chat/completions`."""

    path: ClassVar[str] = "/v1/chat/completions"

    def check(self, body: Any) -> Refusal | None:
        """400 with the API's message."""
        return _refusal(body)

    def parse(self, body: JSONObject) -> ParsedRequest:
        """Results of tools are messages of their own."""
        messages = body["messages"]
        outputs = [item for item in messages if item["role"] == "tool"]
        by_user = [text_of(item.get("content")) for item in messages if item["role"] == "user"]
        guiding = [text_of(item.get("content")) for item in messages if item["role"] in _GUIDING]
        functions = [tool.get("function") for tool in body.get("tools") or [] if isinstance(tool, dict)]
        names = [str(function.get("name")) for function in functions if isinstance(function, dict)]
        return ParsedRequest(
            system="\n".join(guiding),
            user_text=by_user[-1] if by_user else None,
            tool_output=ToolOutput(text_of(outputs[-1].get("content")), None) if outputs else None,
            tools=dict.fromkeys(names, "function"),
            messages=len(messages),
            utterances=tuple(_utterance(item) for item in messages if item["role"] not in _GUIDING),
        )

    def reply_body(self, reply: Reply) -> JSONObject:
        """A completion with one choice."""
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
        reason = stop_reason(reply.turn, blocks)
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
            "model": reply.request["model"],
            "choices": [choice],
            "usage": _usage(reply),
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
        }

    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """Chunks; one with the usage where the request wants it; the word DONE."""
        options = reply.request.get("stream_options")
        wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        head = {key: body[key] for key in ("id", "created", "model", "service_tier", "system_fingerprint")}
        head["object"] = "chat.completion.chunk"
        if wants_usage:
            head["usage"] = None
        (choice,) = body["choices"]
        for delta in _deltas(choice["message"], reply.turn.piece_chars):
            yield _frame({**head, "choices": [_chunk(delta, None)]})
        yield _frame({**head, "choices": [_chunk({}, choice["finish_reason"])]})
        if wants_usage:
            yield _frame({**head, "choices": [], "usage": body["usage"]})
        yield b"data: [DONE]\n\n"

    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:  # noqa: ARG002  # the contract's
        """An error in place of a chunk, or a chunk that is not JSON."""
        if isinstance(fault, Malformed):
            return b"data: " + (fault.data or _NOT_JSON).encode() + b"\n\n"
        kind = fault.type or "server_error"
        return _frame({"error": {"message": fault.message, "type": kind, "param": None, "code": None}})


_GUIDING = ("system", "developer")


def _utterance(item: JSONObject) -> Utterance:
    if item["role"] == "assistant":
        return Utterance("model")
    return Utterance("user", text_of(item.get("content")) if item["role"] == "user" else "")


def _call(block: JSONObject) -> JSONObject:
    function = {"name": block["name"], "arguments": encode(block["input"]).decode()}
    return {"id": block["id"], "type": "function", "function": function}


def _usage(reply: Reply) -> JSONObject:
    counts = usage(reply.turn, reply.request, reply.blocks)
    read, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    taken = counts["input_tokens"] + read + written
    return {
        "prompt_tokens": taken,
        "completion_tokens": counts["output_tokens"],
        "total_tokens": taken + counts["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _deltas(message: JSONObject, piece_chars: int | None) -> Iterator[JSONObject]:
    text = message["content"]
    yield {"role": "assistant", "content": None if text is None else "", "refusal": None}
    for piece in pieces(text or "", piece_chars):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in pieces(function["arguments"], piece_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(delta: JSONObject, finish_reason: str | None) -> JSONObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _frame(chunk: JSONObject) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"


CHAT: Final = ChatDialect()
