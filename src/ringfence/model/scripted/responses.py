"""The Responses API of OpenAI, without a memory: each request brings the whole conversation."""

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

_NOT_JSON = '{"type": "response.output_text.delta", "delta":'
_ECHOED: JSONObject = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""The keys that the API repeats from the request, with their defaults."""

_CALLS: Final = ("function_call", "custom_tool_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")


class ResponsesDialect(OpenAIDialect):
    """`POST /v1/responses`."""

    path: ClassVar[str] = "/v1/responses"

    def check(self, body: Any) -> Refusal | None:
        """Return 400 with the API's message."""
        if not isinstance(body, dict):
            return Refusal(400, "We could not parse the JSON body of your request.")
        if not isinstance(body.get("model"), str):
            return missing_parameter("model")
        if not isinstance(body.get("input"), str | list):
            return missing_parameter("input")
        earlier = body.get("previous_response_id")
        if earlier is not None:
            message = f"Previous response with id {earlier!r} not found."
            return Refusal(400, message, code="previous_response_not_found", param="previous_response_id")
        for index, item in enumerate(_items(body)):
            if not isinstance(item, dict):
                message = f"Invalid type for 'input[{index}]': expected an object."
                return Refusal(400, message, code="invalid_type", param=f"input[{index}]")
        return _broken_conversation(_items(body))

    def parse(self, body: JSONObject) -> ParsedRequest:
        """Parse a request, in which an item is a message, a call, a call's output or reasoning."""
        items = _items(body)
        more = [item.get("tools") for item in items if item.get("type") == "additional_tools"]
        tools = [tool for some in (body.get("tools"), *more) for tool in _tools(some)]
        utterances = (Utterance("guidance", text_of(body.get("instructions"))), *_utterances(items))
        kinds = {str(tool.get("name") or tool.get("type")): str(tool.get("type")) for tool in tools}
        return ParsedRequest(body, utterances, kinds, len(items))

    def reply_body(self, reply: Reply) -> JSONObject:
        """Return a response."""
        cut = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}.get(reply.stop_reason)
        echoed = {key: reply.request.body.get(key, other) for key, other in _ECHOED.items()}
        return {
            "id": f"resp_scripted_{reply.stem}",
            "object": "response",
            "created_at": CREATED,
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": cut} if cut else None,
            "model": reply.request.body["model"],
            "output": [_item(block, reply, index) for index, block in enumerate(reply.blocks)],
            "usage": openai_usage(reply, "input", "output"),
            "user": None,
            **echoed,
        }

    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """Yield numbered events, of which the last holds the complete response once more."""
        for number, event in enumerate(_events(body, reply)):
            yield _frame(event, number)

    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:
        """Return the failure of the response, or a delta that is not JSON."""
        if isinstance(fault, Malformed):
            return encode_event("response.output_text.delta", (fault.data or _NOT_JSON).encode())
        error = {"code": fault.type or "server_error", "message": fault.message}
        failed = {**body, "status": "failed", "output": [], "usage": None, "error": error}
        return _frame({"type": "response.failed", "response": failed}, sent)


def _broken_conversation(items: list[JSONObject]) -> Refusal | None:
    called = [str(item.get("call_id")) for item in items if item.get("type") in _CALLS]
    answered = [str(item.get("call_id")) for item in items if item.get("type") in _OUTPUTS]
    for call in called:
        if call not in answered:
            return Refusal(400, f"No tool output found for function call {call}.", param="input")
    for call in answered:
        if call not in called:
            message = f"No tool call found for function call output with call_id {call}."
            return Refusal(400, message, param="input")
    return None


def _tools(given: Any) -> Iterator[JSONObject]:
    """Yield the tools in a list, including those of its namespaces."""
    for tool in given if isinstance(given, list) else []:
        if isinstance(tool, dict):
            inner = tool.get("tools")
            yield from _tools(inner) if isinstance(inner, list) else [tool]


def _items(body: JSONObject) -> list[JSONObject]:
    given = body["input"]
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def _utterances(items: list[JSONObject]) -> Iterator[Utterance]:
    for item in items:
        speaker, kind = SPEAKERS.get(str(item.get("role"))), item.get("type")
        if speaker is not None:
            yield Utterance(speaker, text_of(item.get("content")))
        elif kind in _OUTPUTS:
            yield Utterance("tool", text_of(item.get("output")))
        elif kind == "reasoning" or str(kind).endswith("_call"):
            yield Utterance("model")


def _item(block: JSONObject, reply: Reply, index: int) -> JSONObject:
    """Return a block as an item of the output."""
    ending = f"scripted_{reply.stem}_{index:02d}"
    kind = block["type"]
    if kind == "text":
        part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
        done = {"type": "message", "status": "completed", "role": "assistant", "content": [part]}
        return {"id": f"msg_{ending}", **done}
    if kind == "tool_use":
        return _call(block, reply, ending)
    summary = [{"type": "summary_text", "text": block["thinking"]}] if kind == "thinking" else []
    sealed = block["signature"] if kind == "thinking" else block.get("data", "")
    return {"id": f"rs_{ending}", "type": "reasoning", "summary": summary, "encrypted_content": sealed}


def _call(block: JSONObject, reply: Reply, ending: str) -> JSONObject:
    name, given = block["name"], block["input"]
    arguments = encode(given).decode()
    call = {"status": "completed", "call_id": block["id"], "name": name}
    if reply.request.tools.get(name) == "custom":
        is_text = list(given) == ["input"] and isinstance(given["input"], str)
        text = given["input"] if is_text else arguments
        return {"id": f"ctc_{ending}", "type": "custom_tool_call", **call, "input": text}
    space = _namespace(name, reply.request.body)
    if space is not None:
        call |= {"namespace": space, "name": name.removeprefix(f"{space}__")}
    return {"id": f"fc_{ending}", "type": "function_call", **call, "arguments": arguments}


def _namespace(name: str, request: JSONObject) -> str | None:
    """Return the space of `SPACE__TOOL` if it is offered, or if further tools can be searched for; else None."""
    offered = [tool for tool in request.get("tools") or [] if isinstance(tool, dict)]
    for tool in offered:
        space = text_of(tool.get("name"))
        if tool.get("type") == "namespace" and space and name.startswith(f"{space}__"):
            return space
    can_search = any(tool.get("type") == "tool_search" for tool in offered)
    server, between, _ = name.rpartition("__")
    return server if can_search and between and name.startswith("mcp__") else None


def _events(body: JSONObject, reply: Reply) -> Iterator[JSONObject]:
    started = {**body, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for index, item in enumerate(body["output"]):
        yield from _item_events(item, index, reply)
    yield {"type": f"response.{body['status']}", "response": body}


def _frame(event: JSONObject, number: int) -> bytes:
    return encode_event(event["type"], encode({**event, "sequence_number": number}))


# --- the events of one item


def _item_events(item: JSONObject, index: int, reply: Reply) -> Iterator[JSONObject]:
    """Yield the events of an item, without their numbers."""
    place = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    if kind == "message":
        opening = {**item, "status": "in_progress", "content": []}
        inner = _message_events(item, place, reply)
    elif kind == "reasoning":
        opening = {**item, "summary": []}
        inner = _reasoning_events(item, place, reply)
    else:
        field, name = _CALL_FIELDS[kind]
        opening = {**item, "status": "in_progress", field: ""}
        inner = _call_events(item, field, name, place, reply)
    yield {"type": "response.output_item.added", "output_index": index, "item": opening}
    yield from inner
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


_CALL_FIELDS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def _message_events(item: JSONObject, place: JSONObject, reply: Reply) -> Iterator[JSONObject]:
    part = item["content"][0]
    here = {**place, "content_index": 0}
    yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""}}
    for piece in reply.pieces(part["text"]):
        yield {"type": "response.output_text.delta", **here, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **here, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **here, "part": part}


def _reasoning_events(item: JSONObject, place: JSONObject, reply: Reply) -> Iterator[JSONObject]:
    for number, part in enumerate(item["summary"]):
        here = {**place, "summary_index": number}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}}
        for piece in reply.pieces(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **here, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **here, "part": part}


def _call_events(
    item: JSONObject, field: str, name: str, place: JSONObject, reply: Reply
) -> Iterator[JSONObject]:
    for piece in reply.pieces(item[field]):
        yield {"type": f"{name}.delta", **place, "delta": piece}
    yield {"type": f"{name}.done", **place, field: item[field]}


RESPONSES: Final = ResponsesDialect()
