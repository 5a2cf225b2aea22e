import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from ringfence.errors import ConfigurationError
from ringfence.tool import Tool, ToolContext, ToolResult, ToolSpec
from ringfence.tool.schema import InputChecker, answer_problem

SCHEMA = {
    "type": "object",
    "properties": {"paths": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}},
    "required": ["paths"],
    "additionalProperties": False,
}


class Example(Tool):
    def __init__(self, schema: dict[str, Any], *, trusts_schema: bool = True) -> None:
        self.spec = ToolSpec("example", "", schema)
        self.trusts_schema = trusts_schema

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"paths": ["a"]}, None),
        ({"paths": ["a", 3]}, "$.paths[1]: 3 is not of type 'string'"),
        ({}, "$: 'paths' is a required property"),
        ("text", "the input must be a JSON object, not str"),
        (None, "the input must be a JSON object, not NoneType"),
    ],
)
def test_a_problem_names_its_path(arguments: Any, expected: str | None) -> None:
    """So that an agent can mend its call."""
    assert InputChecker(Example(SCHEMA)).problem(arguments) == expected


def test_many_and_long_problems_are_cut() -> None:
    """A wrong call does not come back as an essay."""
    problem = InputChecker(Example(SCHEMA)).problem({"paths": [{"x": "y" * 10_000}] * 20})
    assert problem is not None
    assert len(problem) < 2500
    assert problem.endswith("and 15 more")


def test_a_broken_schema_is_refused_at_once() -> None:
    """Not at the first call."""
    with pytest.raises(ConfigurationError, match="'example' is not a JSON Schema"):
        InputChecker(Example({"type": "nonsense"}))


def test_references_are_never_fetched() -> None:
    """A schema cannot make the host open a connection."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with suppress(OSError):
                connections.append(listener.accept()[0])
                connections[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        checker = InputChecker(Example({"type": "object", "properties": {"a": {"$ref": address}}}))
        with pytest.raises(Exception, match="Unresolvable"):
            checker.problem({"a": 1})
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert connections == []


def test_a_schema_from_inside_is_checked_on_its_first_level_only() -> None:
    """A bomb of references and a catastrophic pattern do nothing."""
    bomb: dict[str, Any] = {
        "type": "object",
        "required": ["text"],
        "properties": {"text": {"type": "string", "pattern": "(a+)+$"}, "deep": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)},
    }
    checker = InputChecker(Example(bomb, trusts_schema=False))
    assert checker.problem({"text": "a" * 50 + "!", "deep": 1}) is None
    assert checker.problem({"text": 1}) == "$.text: 1 is not of type 'string'"


@pytest.mark.parametrize(
    ("schema", "answer", "expected"),
    [
        (SCHEMA, {"paths": [], "n": "3"}, "$.n: '3' is not of type 'integer'"),
        (SCHEMA, {"n": 3}, "$: 'paths' is a required property"),
        (SCHEMA, [], "$: [] is not of type 'object'"),
        (SCHEMA, {"paths": [3]}, None),
        ({"type": "array"}, {}, None),
        ({"type": "object", "uniqueItems": 5, "$ref": "https://example.com/"}, {}, None),
    ],
)
def test_an_answer_is_checked_as_far_as_that_is_quick(schema: Any, answer: Any, expected: str | None) -> None:
    """Nothing of it, and nothing of the schema, can hold up whoever checks."""
    assert answer_problem(schema, answer) == expected
