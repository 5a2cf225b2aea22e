"""The Messages API of Anthropic."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from ringfence.events import JSONObject
from ringfence.model.scripted.dialect import (
    SPEAKERS,
    Dialect,
    ParsedRequest,
    Refusal,
    Reply,
    Utterance,
    encode,
    encode_event,
    text_of,
)
from ringfence.model.scripted.script import Malformed, StreamError

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


class MessagesDialect(Dialect):
    """`POST /v1/messages`."""

    path: ClassVar[str] = "/v1/messages"
    request_id_header: ClassVar[str] = "request-id"
    call_prefix: ClassVar[str] = "toolu"

    def check(self, body: Any) -> Refusal | None:
        """Return 400 with the API's message."""
        problem = _problem(body)
        return Refusal(400, problem) if problem else None

    def parse(self, body: JSONObject) -> ParsedRequest:
        """Parse a request, in which a message may hold the results of several tools beside its text."""
        utterances = [Utterance("guidance", text_of(body.get("system")))]
        for item in body["messages"]:
            utterances += [
                Utterance("tool", text_of(block.get("content")), bool(block.get("is_error")))
                for block in _blocks_of(item)
                if block.get("type") == "tool_result"
            ]
            utterances.append(Utterance(SPEAKERS[item["role"]], text_of(item["content"])))
        tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict)]
        names = (str(tool.get("name")) for tool in tools)
        return ParsedRequest(body, tuple(utterances), dict.fromkeys(names, "function"), len(body["messages"]))

    def reply_body(self, reply: Reply) -> JSONObject:
        """Return a message."""
        return {
            "id": f"msg_scripted_{reply.stem}",
            "type": "message",
            "role": "assistant",
            "model": reply.request.body["model"],
            "content": reply.blocks,
            "stop_reason": reply.stop_reason,
            "stop_sequence": None,
            "usage": {**reply.usage, "service_tier": "standard"},
        }

    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """Yield events whose data repeats their name."""
        for event in _events(body, reply):
            yield encode_event(event["type"], encode(event))

    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:  # noqa: ARG002  # the contract's
        """Return an `error` event, or a delta that is not JSON."""
        if isinstance(fault, Malformed):
            return encode_event("content_block_delta", (fault.data or _NOT_JSON).encode())
        error = {"type": fault.type or "overloaded_error", "message": fault.message}
        return encode_event("error", encode({"type": "error", "error": error}))

    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:
        """Return an error, which has the same shape whatever its cause."""
        kind = refusal.type or _ERROR_TYPES.get(refusal.status, "api_error")
        error = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": request_id}


def _problem(body: Any) -> str | None:
    """Return why the API would answer 400 to this body; None if it would not."""
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
        unexpected = sorted(results - set(called))
        if unexpected:
            return (
                f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unexpected[0]}"
            )
        called = [str(block.get("id")) for block in found if block.get("type") == "tool_use"]
    if called:
        return f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks"
    return None


def _blocks_of(item: JSONObject) -> Iterator[JSONObject]:
    """Yield the blocks of a message."""
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


def _events(body: JSONObject, reply: Reply) -> Iterator[JSONObject]:
    """Yield the events by which the API would stream the message `body`, in its order."""
    counts = body["usage"]
    start = {**body, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(body["content"]):
        opening, deltas = _streamed(block, reply)
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    totals = {key: value for key, value in counts.items() if key.endswith("_tokens")}
    yield {"type": "message_delta", "delta": end, "usage": totals}
    yield {"type": "message_stop"}


def _streamed(block: JSONObject, reply: Reply) -> tuple[JSONObject, list[JSONObject]]:
    """Return the block as it opens, and the deltas that complete it."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": part} for part in reply.pieces(block["text"])]
        return {**block, "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in reply.pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind == "tool_use":
        # The API, too, begins with an empty piece.
        parts = ["", *reply.pieces(encode(block["input"]).decode())]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block, []


MESSAGES: Final = MessagesDialect()
