"""The Messages API of Anthropic."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from ringfence.model.scripted.dialect import (
    Dialect,
    ParsedRequest,
    Refusal,
    Reply,
    ToolOutput,
    Utterance,
    encode,
    encode_event,
    pieces,
    stop_reason,
    text_of,
    usage,
)
from ringfence.model.scripted.script import JSONObject, Malformed, StreamError, Turn

Event = tuple[str, JSONObject]

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_NOT_JSON = '{"type": "content_block_delta", "index": 0, "delta":'
_BREAKPOINTS = 4


def _problem(body: Any) -> str | None:
    """Why the API would answer 400 to this body; None if it would not."""
    if not isinstance(body, dict):
        return "request body: Input should be an object"
    for key, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if key not in body:
            return f"{key}: Field required"
        if not isinstance(body[key], kind):
            return f"{key}: Input should be a valid {kind.__name__}"
    if body["max_tokens"] < 1:
        return "max_tokens: Input should be greater than or equal to 1"
    for index, item in enumerate(body["messages"]):
        if (
            not isinstance(item, dict)
            or item.get("role") not in ("user", "assistant", "system")
            or "content" not in item
        ):
            return f"messages.{index}: a role (user, assistant, system) and content are required"
    if not body["messages"] or body["messages"][0]["role"] != "user":
        return "messages: the first message must use the user role"
    if sum("cache_control" in part for part in _marked_parts(body)) > _BREAKPOINTS:
        return f"A maximum of {_BREAKPOINTS} blocks with cache_control may be provided."
    return _broken_conversation(body["messages"])


def _broken_conversation(messages: list[JSONObject]) -> str | None:
    called: list[str] = []
    for index, item in enumerate(messages):
        if item["role"] == "system":
            continue
        found = list(_blocks_of(item))
        if any(block.get("type") == "text" and not block.get("text") for block in found):
            return f"messages.{index}: text content blocks must be non-empty"
        results = {str(block.get("tool_use_id")) for block in found if block.get("type") == "tool_result"}
        missing = [call for call in called if call not in results]
        if missing:
            return (
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}"
            )
        unasked = sorted(results - set(called))
        if unasked:
            return f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unasked[0]}"
        called = [str(block.get("id")) for block in found if block.get("type") == "tool_use"]
    if called:
        return f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks"
    return None


def _blocks_of(item: JSONObject) -> Iterator[JSONObject]:
    """The blocks of a message."""
    content = item["content"]
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _marked_parts(body: JSONObject) -> Iterator[JSONObject]:
    system = body.get("system")
    for group in (system if isinstance(system, list) else [], body.get("tools") or []):
        yield from (part for part in group if isinstance(part, dict))
    for item in body["messages"]:
        yield from _blocks_of(item)


class MessagesDialect(Dialect):
    """`POST /v1/messages`."""

    path: ClassVar[str] = "/v1/messages"
    request_id_header: ClassVar[str] = "request-id"
    call_prefix: ClassVar[str] = "toolu"

    def check(self, body: Any) -> Refusal | None:
        """400 with the API's message."""
        problem = _problem(body)
        return Refusal(400, problem) if problem else None

    def parse(self, body: JSONObject) -> ParsedRequest:
        """A message may hold several blocks; the conversation has one utterance for each message."""
        messages = body["messages"]
        results = [
            block for item in messages for block in _blocks_of(item) if block.get("type") == "tool_result"
        ]
        output = None
        if results:
            output = ToolOutput(text_of(results[-1].get("content")), bool(results[-1].get("is_error")))
        spoken = [item for item in messages if item["role"] != "system"]
        tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict)]
        return ParsedRequest(
            system=text_of(body.get("system")),
            user_text=text_of(messages[-1]["content"]) if messages[-1]["role"] == "user" else _last(spoken),
            tool_output=output,
            tools={str(tool.get("name")): "function" for tool in tools},
            messages=len(messages),
            utterances=tuple(_utterance(item) for item in spoken),
        )

    def reply_body(self, reply: Reply) -> JSONObject:
        """A message."""
        return message(reply.turn, reply.request, blocks=reply.blocks, stem=reply.stem)

    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """Each event says its name twice."""
        for name, data in stream_events(body, reply.turn.piece_chars):
            yield encode_event(name, encode(data))

    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:  # noqa: ARG002  # the contract's
        """An `error` event, or a delta that is not JSON."""
        if isinstance(fault, Malformed):
            return encode_event("content_block_delta", (fault.data or _NOT_JSON).encode())
        error = {"type": fault.type or "overloaded_error", "message": fault.message}
        return encode_event("error", encode({"type": "error", "error": error}))

    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:
        """The same shape in all errors."""
        kind = refusal.type or _ERROR_TYPES.get(refusal.status, "api_error")
        error = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": request_id}


def _last(messages: list[JSONObject]) -> str | None:
    own = [item for item in messages if item["role"] == "user"]
    return text_of(own[-1]["content"]) if own else None


def _utterance(item: JSONObject) -> Utterance:
    if item["role"] == "assistant":
        return Utterance("model")
    return Utterance("user", text_of(item["content"]))


def message(turn: Turn, request: JSONObject, *, blocks: list[JSONObject], stem: str) -> JSONObject:
    """The whole reply as one object."""
    return {
        "id": f"msg_scripted_{stem}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": blocks,
        "stop_reason": stop_reason(turn, blocks),
        "stop_sequence": None,
        "usage": {**usage(turn, request, blocks), "service_tier": "standard"},
    }


def stream_events(body: JSONObject, piece_chars: int | None) -> Iterator[Event]:
    """The events by which the API would stream `reply`, in its order."""
    counts = body["usage"]
    start = {**body, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": start}
    for index, block in enumerate(body["content"]):
        opening, deltas = _streamed(block, piece_chars)
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": opening}
        if index == 0:
            yield "ping", {"type": "ping"}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    end = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    totals = {key: value for key, value in counts.items() if key.endswith("_tokens")}
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": totals}
    yield "message_stop", {"type": "message_stop"}


def _streamed(block: JSONObject, piece_chars: int | None) -> tuple[JSONObject, list[JSONObject]]:
    """The block as it opens, and what is added to it."""
    kind = block["type"]
    if kind == "text":
        parts = pieces(block["text"], piece_chars)
        return {**block, "text": ""}, [{"type": "text_delta", "text": part} for part in parts]
    if kind == "thinking":
        parts = pieces(block["thinking"], piece_chars)
        deltas = [{"type": "thinking_delta", "thinking": part} for part in parts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind == "tool_use":
        # The API, too, begins with an empty piece.
        parts = ["", *pieces(encode(block["input"]).decode(), piece_chars)]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block, []


MESSAGES: Final = MessagesDialect()
