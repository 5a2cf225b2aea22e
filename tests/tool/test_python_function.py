from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from ringfence.errors import UsageError
from ringfence.tool import ToolContext, ToolResult, tool

pytestmark = pytest.mark.anyio


class Point(BaseModel):
    x: int
    y: int = 0


@tool
def describe(
    point: Point,
    copy: Annotated[int, Field(description="How many.", ge=1)] = 1,
    kind: Literal["short", "long"] = "short",
) -> dict[str, Any]:
    """Describe a point.

    In full.
    """
    return {"sum": point.x + point.y, "copies": copy, "kind": kind}


def test_the_schema_comes_from_the_hints() -> None:
    """Types, defaults and descriptions; a name such as `copy` is no trouble."""
    schema = describe.spec.input_schema
    assert schema["required"] == ["point"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["copy"] == {
        "type": "integer",
        "minimum": 1,
        "default": 1,
        "description": "How many.",
    }
    assert schema["properties"]["kind"]["enum"] == ["short", "long"]


def test_the_docstring_is_the_description() -> None:
    """All of it."""
    assert describe.spec.description == "Describe a point.\n\nIn full."


async def test_arguments_arrive_as_their_types(context: ToolContext) -> None:
    """A JSON object becomes the model that the hint names."""
    result = await describe.call({"point": {"x": 2}, "copy": 3}, context)
    assert result == ToolResult('{"sum":2,"copies":3,"kind":"short"}')


async def test_what_pydantic_refuses_is_an_error_result(context: ToolContext) -> None:
    """With the place."""
    result = await describe.call({"point": {"x": "two"}}, context)
    assert result.is_error
    assert "$.point.x: " in result.content


async def test_the_function_can_still_be_called() -> None:
    """The decorator does not get in the way."""
    assert describe(Point(x=1))["sum"] == 1


async def test_a_plain_function_runs_in_a_thread(context: ToolContext) -> None:
    """It does not block the loop."""

    @tool
    def where() -> bool:
        """Where."""
        return threading.current_thread() is threading.main_thread()

    assert (await where.call({}, context)).content == "false"


async def test_the_context_is_given_and_not_shown(context: ToolContext) -> None:
    """A function that works in the sandbox."""

    @tool
    async def who(name: str, context: ToolContext) -> str:
        """Say who."""
        return (await context.sandbox.run(["echo", name])).stdout

    assert list(who.spec.input_schema["properties"]) == ["name"]
    assert (await who.call({"name": "me"}, context)).content == "me\n"


async def test_a_function_that_takes_too_long_is_an_error_result(context: ToolContext) -> None:
    """The deadline is the tool's own."""

    @tool(timeout_s=0.05)
    async def slow() -> None:
        """Be slow."""
        await anyio.sleep_forever()

    assert await slow.call({}, context) == ToolResult("slow took longer than 0.05 s", is_error=True)


@pytest.mark.parametrize(
    ("value", "content"),
    [(None, "[no result]"), ("text", "text"), ([1, "é"], '[1,"é"]'), (float("inf"), '"Infinity"')],
)
async def test_results_become_text(context: ToolContext, value: Any, content: str) -> None:
    """Text as it is, anything else as JSON."""

    @tool
    async def give() -> Any:
        """Give."""
        return value

    assert (await give.call({}, context)).content == content


def no_doc(a: int) -> None: ...  # noqa: D103 - that is what is tested
def no_hint(a) -> None:
    """Doc."""


def stars(*a: int) -> None:
    """Doc."""


def no_schema(a: threading.Lock) -> None:
    """Doc."""


def unknown(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Doc."""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (no_doc, "no docstring"),
        (no_hint, "has no type hint"),
        (stars, "no name in JSON"),
        (no_schema, "cannot be used"),
        (unknown, "cannot be resolved"),
    ],
)
def test_functions_that_make_no_tool_are_refused(function: Any, expected: str) -> None:
    """When they are decorated, not when they are called."""
    with pytest.raises(UsageError, match=expected):
        tool(function)


def test_a_function_without_parameters() -> None:
    """Its schema is an empty object."""
    assert tool(lone).spec.input_schema["properties"] == {}


def lone() -> None:
    """Alone."""
