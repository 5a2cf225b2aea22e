"""What a request asks for, whichever API it came by; and whether that is what a script expects."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ringfence.frozen import frozen
from ringfence.model.scripted.script import Expectation

_SHOWN = 200


@frozen
class Utterance:
    """One piece of the conversation so far. Results of tools stand in it as the user's, without text."""

    by: Literal["user", "model"]
    text: str = ""


@frozen
class ToolOutput:
    """What a tool gave back."""

    text: str
    is_error: bool | None
    """None: the API does not tell."""


@frozen
class Asked:
    """A request, as far as scripts care."""

    system: str
    user_text: str | None
    """The last message of the user."""
    tool_output: ToolOutput | None
    """The last one."""
    tools: Mapping[str, str]
    """Names of the tools that are offered, each with its kind; `custom` takes text as it is."""
    messages: int
    """Messages or items in the conversation."""
    said: tuple[Utterance, ...] = field(default=(), repr=False)
    """The conversation in order."""


def unmet(expected: Expectation, asked: Asked) -> str | None:
    """The first thing a request lacks; None if it is as expected."""
    output = asked.tool_output
    texts = (
        ("the last tool result", expected.last_tool_result, output.text if output else None),
        ("the last user message", expected.last_user_text, asked.user_text),
        ("the system prompt", expected.system, asked.system),
    )
    for what, wanted, found in texts:
        if wanted is not None and (found is None or wanted not in found):
            return f"expected {what} to contain {wanted!r}, got {_cut(found)}"
    if expected.last_tool_is_error is not None:
        problem = _unmet_error(expected.last_tool_is_error, output)
        if problem:
            return problem
    for name in expected.tools:
        if name not in asked.tools:
            return f"expected the tool {name!r} to be offered, got {list(asked.tools)!r}"
    if expected.messages is not None and asked.messages != expected.messages:
        return f"expected {expected.messages} messages, got {asked.messages}"
    return None


def _unmet_error(wanted: bool, output: ToolOutput | None) -> str | None:
    if output is not None and output.is_error is None:
        return f"expected is_error of the last tool result to be {wanted}, and this API does not tell it"
    if output is None or output.is_error != wanted:
        return f"expected is_error of the last tool result to be {wanted}"
    return None


def _cut(text: str | None) -> str:
    if text is None:
        return "none"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."
