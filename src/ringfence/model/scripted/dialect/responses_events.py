"""The events by which the Responses API streams one item of its output."""

from collections.abc import Iterator

from ringfence.model.scripted.blocks import pieces
from ringfence.model.scripted.script import JSONObject


def item_events(item: JSONObject, index: int, piece_chars: int | None) -> Iterator[JSONObject]:
    """From `response.output_item.added` to `response.output_item.done`, without their numbers."""
    place = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    if kind == "message":
        opening = {**item, "status": "in_progress", "content": []}
        inner = _message(item, place, piece_chars)
    elif kind == "reasoning":
        opening = {**item, "summary": []}
        inner = _reasoning(item, place, piece_chars)
    else:
        field, name = _CALLS[kind]
        opening = {**item, "status": "in_progress", field: ""}
        inner = _call(item, field, name, place, piece_chars)
    yield {"type": "response.output_item.added", "output_index": index, "item": opening}
    yield from inner
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def _message(item: JSONObject, place: JSONObject, piece_chars: int | None) -> Iterator[JSONObject]:
    part = item["content"][0]
    here = {**place, "content_index": 0}
    yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
    for piece in pieces(part["text"], piece_chars):
        yield {"type": "response.output_text.delta", **here, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **here, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **here, "part": part}


def _reasoning(item: JSONObject, place: JSONObject, piece_chars: int | None) -> Iterator[JSONObject]:
    for number, part in enumerate(item["summary"]):
        here = {**place, "summary_index": number}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}}
        for piece in pieces(part["text"], piece_chars):
            yield {"type": "response.reasoning_summary_text.delta", **here, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **here, "part": part}


def _call(
    item: JSONObject, field: str, name: str, place: JSONObject, piece_chars: int | None
) -> Iterator[JSONObject]:
    for piece in pieces(item[field], piece_chars):
        yield {"type": f"{name}.delta", **place, "delta": piece}
    yield {"type": f"{name}.done", **place, field: item[field]}
