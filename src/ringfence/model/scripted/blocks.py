"""What a turn says, before it takes the form of an API: blocks in the shape of the Messages API."""

import base64
import hashlib
import json
from collections.abc import Collection
from typing import Any, Final

from ringfence.model.scripted.script import JSONObject, ToolCall, Turn

_PIECES = 20
_LEAST_PIECE = 24
_CHARS_PER_TOKEN = 4
_OF_A_REQUEST = ("system", "instructions", "tools", "messages", "input")

SHELLS: Final = {
    "shell": "command",
    "Bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "bash": "command",
    "exec": "input",
}
"""Tools that run a command, by name, with the argument that takes it; in the order of preference."""

_SCRIPTED_RUN: Final = "const done = await tools.exec_command({cmd: %s}); text(done.output);"
"""What `exec`, which takes JavaScript, is given."""


def content_blocks(
    turn: Turn, stem: str, offered: Collection[str], *, call_prefix: str = "toolu"
) -> list[JSONObject]:
    """The blocks of a turn's reply; ids and signatures are made up where the script gives none.

    Args:
        turn: What is said.
        stem: Part of all ids made up here; another for each reply of a conversation.
        offered: Names of the tools in the request, among them one of `SHELLS` if the turn has a `run`.
        call_prefix: How ids of calls begin.
    """
    blocks: list[JSONObject] = []
    if turn.content is not None:
        blocks += [block.model_dump() for block in turn.content]
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": turn.signature})
    if turn.redacted_thinking is not None:
        blocks.append({"type": "redacted_thinking", "data": turn.redacted_thinking})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    blocks += [_call(call, offered) for call in turn.tools]
    return [
        _completed(block, f"{call_prefix}_scripted_{stem}_{position:02d}")
        for position, block in enumerate(blocks)
    ]


def _call(call: ToolCall, offered: Collection[str]) -> JSONObject:
    name, arguments = call.name, call.input
    if call.run is not None:
        name = shell_of(offered)
        command = _SCRIPTED_RUN % json.dumps(call.run) if name == "exec" else call.run
        arguments = {SHELLS.get(name or "", "command"): command}
        if name == "shell":
            arguments["reasoning"] = "the script says so"
    return {"type": "tool_use", "id": call.id, "name": name, "input": arguments}


def shell_of(offered: Collection[str]) -> str | None:
    """The tool for commands among those offered; None if there is none."""
    return next((name for name in SHELLS if name in offered), None)


def _completed(block: JSONObject, call_id: str) -> JSONObject:
    if block["type"] == "tool_use" and not block.get("id"):
        return {**block, "id": call_id}
    if block["type"] == "thinking" and not block.get("signature"):
        digest = hashlib.sha256(block["thinking"].encode()).digest()
        return {**block, "signature": base64.b64encode(digest).decode()}
    return block


def stop_reason(turn: Turn, blocks: list[JSONObject]) -> str:
    """The turn's own, else `tool_use` or `end_turn` by the blocks."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    return turn.stop_reason or ("tool_use" if calls else "end_turn")


def usage(turn: Turn, request: JSONObject, blocks: list[JSONObject]) -> dict[str, int]:
    """The turn's own numbers, estimates for those it leaves out."""
    given = turn.usage
    return {
        "input_tokens": estimate(request) if given.input_tokens is None else given.input_tokens,
        "cache_creation_input_tokens": given.cache_creation_input_tokens,
        "cache_read_input_tokens": given.cache_read_input_tokens,
        "output_tokens": estimate(blocks) if given.output_tokens is None else given.output_tokens,
    }


def estimate(value: Any) -> int:
    """Tokens in `value`, by its length as JSON."""
    if isinstance(value, dict):
        value = {key: value[key] for key in _OF_A_REQUEST if key in value}
    return max(1, len(encode(value)) // _CHARS_PER_TOKEN)


def pieces(text: str, piece_chars: int | None) -> list[str]:
    """`text` in the pieces that it is streamed in."""
    size = piece_chars or max(_LEAST_PIECE, -(-len(text) // _PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def text_of(content: Any) -> str:
    """The text in a message's content: text itself, or the `text` of its parts."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def encode(value: Any) -> bytes:
    """JSON as the APIs write it: UTF-8, not escaped where it need not be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode_event(name: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
