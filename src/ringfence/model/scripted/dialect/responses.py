"""The Responses API of OpenAI, without a memory: each request brings the whole conversation."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from ringfence.model.scripted import blocks as said
from ringfence.model.scripted.asked import Asked, ToolOutput, Utterance
from ringfence.model.scripted.blocks import encode, encode_event, text_of
from ringfence.model.scripted.dialect.base import Refusal, Saying
from ringfence.model.scripted.dialect.openai import CREATED, OpenAIDialect, call_input
from ringfence.model.scripted.dialect.responses_events import item_events
from ringfence.model.scripted.script import JSONObject, Malformed, StreamError

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
"""What the API repeats from the request, with what stands there otherwise."""


CALLS: Final = ("function_call", "custom_tool_call")
OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")


def broken_rule(body: Any) -> Refusal | None:
    """Why the API would answer 400 to this body; None if it would not."""
    if not isinstance(body, dict):
        return Refusal(400, "We could not parse the JSON body of your request.")
    if not isinstance(body.get("model"), str):
        return _missing("model")
    if not isinstance(body.get("input"), str | list):
        return _missing("input")
    earlier = body.get("previous_response_id")
    if earlier is not None:
        message = f"Previous response with id {earlier!r} not found."
        return Refusal(400, message, code="previous_response_not_found", param="previous_response_id")
    if isinstance(body["input"], str):
        return None
    for index, item in enumerate(body["input"]):
        if not isinstance(item, dict):
            message = f"Invalid type for 'input[{index}]': expected an object."
            return Refusal(400, message, code="invalid_type", param=f"input[{index}]")
    return _broken_conversation(body["input"])


def _missing(name: str) -> Refusal:
    return Refusal(
        400, f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name
    )


def _broken_conversation(items: list[JSONObject]) -> Refusal | None:
    called = [str(item.get("call_id")) for item in items if item.get("type") in CALLS]
    answered = [str(item.get("call_id")) for item in items if item.get("type") in OUTPUTS]
    for call in called:
        if call not in answered:
            return Refusal(400, f"No tool output found for function call {call}.", param="input")
    for call in answered:
        if call not in called:
            message = f"No tool call found for function call output with call_id {call}."
            return Refusal(400, message, param="input")
    return None


class ResponsesDialect(OpenAIDialect):
    """`POST /v1/responses`."""

    path: ClassVar[str] = "/v1/responses"

    def broken_rule(self, body: Any) -> Refusal | None:
        """400 in the API's words."""
        return broken_rule(body)

    def asked(self, body: JSONObject) -> Asked:
        """An item is a message, a call, a call's output or reasoning."""
        items = _items(body)
        outputs = [item for item in items if item.get("type") in OUTPUTS]
        by_user = [text_of(item.get("content")) for item in items if item.get("role") == "user"]
        guiding = [
            text_of(item.get("content")) for item in items if item.get("role") in ("system", "developer")
        ]
        more = [item.get("tools") for item in items if item.get("type") == "additional_tools"]
        tools = [tool for some in (body.get("tools"), *more) for tool in _tools(some)]
        return Asked(
            system="\n".join([text_of(body.get("instructions")), *guiding]),
            user_text=by_user[-1] if by_user else None,
            tool_output=ToolOutput(text_of(outputs[-1].get("output")), None) if outputs else None,
            tools={str(tool.get("name") or tool.get("type")): str(tool.get("type")) for tool in tools},
            messages=len(items),
            said=tuple(utterance for item in items for utterance in _utterances(item)),
        )

    def whole(self, saying: Saying) -> JSONObject:
        """A response."""
        reason = said.stop_reason(saying.turn, saying.blocks)
        cut = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}.get(reason)
        echoed = {key: saying.request.get(key, other) for key, other in _ECHOED.items()}
        return {
            "id": f"resp_scripted_{saying.stem}",
            "object": "response",
            "created_at": CREATED,
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": cut} if cut else None,
            "model": saying.request["model"],
            "output": [_item(block, saying, index) for index, block in enumerate(saying.blocks)],
            "usage": _usage(saying),
            "user": None,
            **echoed,
        }

    def frames(self, reply: JSONObject, saying: Saying) -> Iterator[bytes]:
        """Numbered events; the last one holds the whole response once more."""
        for number, event in enumerate(_events(reply, saying.turn.piece_chars)):
            yield _frame(event, number)

    def broken_frame(self, fault: StreamError | Malformed, reply: JSONObject, sent: int) -> bytes:
        """The response fails, or a delta is not JSON."""
        if isinstance(fault, Malformed):
            return encode_event("response.output_text.delta", (fault.data or _NOT_JSON).encode())
        error = {"code": fault.type or "server_error", "message": fault.message}
        failed = {**reply, "status": "failed", "output": [], "usage": None, "error": error}
        return _frame({"type": "response.failed", "response": failed}, sent)


def _tools(given: Any) -> Iterator[JSONObject]:
    """Tools in a list, those of its namespaces too."""
    for tool in given if isinstance(given, list) else []:
        if isinstance(tool, dict):
            inner = tool.get("tools")
            yield from _tools(inner) if isinstance(inner, list) else [tool]


def _items(body: JSONObject) -> list[JSONObject]:
    given = body["input"]
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def _utterances(item: JSONObject) -> Iterator[Utterance]:
    role, kind = item.get("role"), item.get("type")
    if role == "user":
        yield Utterance("user", text_of(item.get("content")))
    elif kind in OUTPUTS:
        yield Utterance("user")
    elif role == "assistant" or kind == "reasoning" or str(kind).endswith("_call"):
        yield Utterance("model")


def _item(block: JSONObject, saying: Saying, index: int) -> JSONObject:
    """A block as an item of the output."""
    ending = f"scripted_{saying.stem}_{index:02d}"
    kind = block["type"]
    if kind == "text":
        part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
        done = {"type": "message", "status": "completed", "role": "assistant", "content": [part]}
        return {"id": f"msg_{ending}", **done}
    if kind == "tool_use":
        return _call(block, saying, ending)
    summary = [{"type": "summary_text", "text": block["thinking"]}] if kind == "thinking" else []
    sealed = block["signature"] if kind == "thinking" else block.get("data", "")
    return {"id": f"rs_{ending}", "type": "reasoning", "summary": summary, "encrypted_content": sealed}


def _call(block: JSONObject, saying: Saying, ending: str) -> JSONObject:
    name, arguments = block["name"], encode(block["input"]).decode()
    call = {"status": "completed", "call_id": block["id"], "name": name}
    if saying.asked.tools.get(name) == "custom":
        text = call_input(block["input"])
        return {
            "id": f"ctc_{ending}",
            "type": "custom_tool_call",
            **call,
            "input": arguments if text is None else text,
        }
    space = _namespace(name, saying.request)
    if space is not None:
        call |= {"namespace": space, "name": name.removeprefix(f"{space}__")}
    return {"id": f"fc_{ending}", "type": "function_call", **call, "arguments": arguments}


def _namespace(name: str, request: JSONObject) -> str | None:
    """Of `SPACE__TOOL`, the space, if such a one is offered, or if tools that are not offered can be searched for."""
    offered = [tool for tool in request.get("tools") or [] if isinstance(tool, dict)]
    for tool in offered:
        space = text_of(tool.get("name"))
        if tool.get("type") == "namespace" and space and name.startswith(f"{space}__"):
            return space
    can_search = any(tool.get("type") == "tool_search" for tool in offered)
    server, between, _ = name.rpartition("__")
    return server if can_search and between and name.startswith("mcp__") else None


def _usage(saying: Saying) -> JSONObject:
    counts = said.usage(saying.turn, saying.request, saying.blocks)
    read, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    taken = counts["input_tokens"] + read + written
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": counts["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken + counts["output_tokens"],
    }


def _events(reply: JSONObject, piece_chars: int | None) -> Iterator[JSONObject]:
    begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(reply["output"]):
        yield from item_events(item, index, piece_chars)
    yield {"type": f"response.{reply['status']}", "response": reply}


def _frame(event: JSONObject, number: int) -> bytes:
    return encode_event(event["type"], encode({**event, "sequence_number": number}))
