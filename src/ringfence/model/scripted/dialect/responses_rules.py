"""What the Responses API refuses and clients get wrong."""

from typing import Any, Final

from ringfence.model.scripted.dialect.base import Refusal
from ringfence.model.scripted.script import JSONObject

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
