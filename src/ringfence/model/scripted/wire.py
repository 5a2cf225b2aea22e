"""The Messages API's own forms: content blocks, the events of a stream, error bodies."""

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ringfence.model.scripted.script import JSONObject, Turn

Event = tuple[str, JSONObject]

_PIECES = 20
_LEAST_PIECE = 24
_CHARS_PER_TOKEN = 4


def content_blocks(turn: Turn, turn_index: int) -> list[JSONObject]:
    """The blocks of a turn's reply, ids and signatures made up where the script gives none."""
    blocks: list[JSONObject] = []
    if turn.content is not None:
        blocks += [block.model_dump() for block in turn.content]
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": turn.signature})
    if turn.redacted_thinking is not None:
        blocks.append({"type": "redacted_thinking", "data": turn.redacted_thinking})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input} for call in turn.tools
    ]
    return [_completed(block, turn_index, position) for position, block in enumerate(blocks)]


def _completed(block: JSONObject, turn_index: int, position: int) -> JSONObject:
    if block["type"] == "tool_use" and not block.get("id"):
        return {**block, "id": f"toolu_scripted_{turn_index + 1:04d}_{position:02d}"}
    if block["type"] == "thinking" and not block.get("signature"):
        digest = hashlib.sha256(block["thinking"].encode()).digest()
        return {**block, "signature": base64.b64encode(digest).decode()}
    return block


def stop_reason(turn: Turn, blocks: list[JSONObject]) -> str:
    """The turn's own, else `tool_use` or `end_turn` by the blocks."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    return turn.stop_reason or ("tool_use" if calls else "end_turn")


def usage(turn: Turn, request: JSONObject, blocks: list[JSONObject]) -> JSONObject:
    """The turn's own numbers, estimates for those it leaves out."""
    given = turn.usage
    return {
        "input_tokens": estimate(request) if given.input_tokens is None else given.input_tokens,
        "cache_creation_input_tokens": given.cache_creation_input_tokens,
        "cache_read_input_tokens": given.cache_read_input_tokens,
        "output_tokens": estimate(blocks) if given.output_tokens is None else given.output_tokens,
        "service_tier": "standard",
    }


def estimate(value: Any) -> int:
    """Tokens in `value`, by its length as JSON."""
    if isinstance(value, dict):
        value = {key: value[key] for key in ("system", "tools", "messages") if key in value}
    return max(1, len(encode(value)) // _CHARS_PER_TOKEN)


def message(turn: Turn, turn_index: int, request: JSONObject) -> JSONObject:
    """The whole reply as one object."""
    blocks = content_blocks(turn, turn_index)
    return {
        "id": f"msg_scripted_{turn_index + 1:04d}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": blocks,
        "stop_reason": stop_reason(turn, blocks),
        "stop_sequence": None,
        "usage": usage(turn, request, blocks),
    }


def stream_events(reply: JSONObject, piece_chars: int | None) -> Iterator[Event]:
    """The events by which the API would stream `reply`, in its order."""
    counts = reply["usage"]
    start = {**reply, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": start}
    for index, block in enumerate(reply["content"]):
        opening, deltas = _streamed(block, piece_chars)
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": opening}
        if index == 0:
            yield "ping", {"type": "ping"}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    totals = {key: value for key, value in counts.items() if key.endswith("_tokens")}
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": totals}
    yield "message_stop", {"type": "message_stop"}


def _streamed(block: JSONObject, piece_chars: int | None) -> tuple[JSONObject, list[JSONObject]]:
    """The block as it opens, and what is added to it."""
    kind = block["type"]
    if kind == "text":
        pieces = _pieces(block["text"], piece_chars)
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
    if kind == "thinking":
        pieces = _pieces(block["thinking"], piece_chars)
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind == "tool_use":
        # The API, too, begins with an empty piece.
        pieces = ["", *_pieces(encode(block["input"]).decode(), piece_chars)]
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": piece} for piece in pieces
        ]
    return block, []


def _pieces(text: str, piece_chars: int | None) -> list[str]:
    size = piece_chars or max(_LEAST_PIECE, -(-len(text) // _PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def encode(value: Any) -> bytes:
    """JSON as the API writes it: UTF-8, not escaped where it need not be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode_event(name: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def error_body(error_type: str, text: str, request_id: str) -> JSONObject:
    """The body of an error, or the data of an `error` event."""
    return {"type": "error", "error": {"type": error_type, "message": text}, "request_id": request_id}
