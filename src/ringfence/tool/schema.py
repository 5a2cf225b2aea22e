"""Validates an agent's input and answers against a JSON Schema on the host, with errors that the agent can act on.

jsonschema is imported on first use, because many runs never need it.
"""

import json
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ringfence.errors import ConfigurationError
from ringfence.events import JSONObject
from ringfence.tool.base import Tool

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_SHOWN_ERRORS = 5
_SHOWN_CHARS = 300
_SIMPLE_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


class InputChecker:
    """Validates inputs for one tool.

    Raises:
        ConfigurationError: The tool's schema is not a valid JSON Schema.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        if tool.trusts_schema and not tool.has_valid_schema:
            self._check_schema()

    def _check_schema(self) -> None:
        from jsonschema.exceptions import SchemaError

        try:
            _ = self._validator
        except SchemaError as error:
            raise ConfigurationError(
                f"the input schema of tool {self._tool.spec.name!r} is not a JSON Schema: {error.message}"
            ) from error

    @cached_property
    def _validator(self) -> "Draft202012Validator":
        tool = self._tool
        schema = tool.spec.input_schema if tool.trusts_schema else _first_level(tool.spec.input_schema)
        return _validator(json.dumps(schema, sort_keys=True))

    def problem(self, arguments: Any) -> str | None:
        """Describe how `arguments` violate the schema, with the path of each error; None if they are valid."""
        if not isinstance(arguments, dict):
            return f"the input must be a JSON object, not {type(arguments).__name__}"
        return _problem(self._validator, arguments)


def answer_problem(schema: JSONObject, answer: Any) -> str | None:
    """Describe how an answer violates a schema; None if no violation was found.

    Only required names and plain types of an object's first level are checked: the time for more could be prolonged
    by a hostile answer.
    """
    if schema.get("type") != "object":
        return None
    return _problem(_validator(json.dumps(_first_level(schema), sort_keys=True)), answer)


def _problem(validator: "Draft202012Validator", value: Any) -> str | None:
    errors = sorted(validator.iter_errors(value), key=lambda error: error.json_path)
    if not errors:
        return None
    lines = [_line(error) for error in errors[:_SHOWN_ERRORS]]
    if len(errors) > _SHOWN_ERRORS:
        lines.append(f"and {len(errors) - _SHOWN_ERRORS} more")
    return "; ".join(lines)


@lru_cache(maxsize=64)
def _validator(schema: str) -> "Draft202012Validator":
    """Return a validator for a schema after checking the schema; cached, since a worker needs the same for each job.

    Raises:
        SchemaError: The text is not a JSON Schema.
    """
    from jsonschema import Draft202012Validator
    from referencing import Registry

    document = json.loads(schema)
    Draft202012Validator.check_schema(document)
    # The registry is empty, because with the default one a "$ref" to a URL would make the host fetch it.
    return Draft202012Validator(document, registry=Registry())


def _line(error: "ValidationError") -> str:
    message = error.message
    if len(message) > _SHOWN_CHARS:
        message = f"{message[: _SHOWN_CHARS // 2]} ... {message[-_SHOWN_CHARS // 2 :]}"
    return f"{error.json_path}: {message}"


def _first_level(schema: JSONObject) -> JSONObject:
    """Return the part of an untrusted schema that is safe to check: required names and plain types."""
    checked: JSONObject = {"type": "object"}
    required = schema.get("required")
    if isinstance(required, list) and all(isinstance(name, str) for name in required):
        checked["required"] = sorted(set(required))
    properties = schema.get("properties")
    if isinstance(properties, dict):
        checked["properties"] = {
            name: {"type": value["type"]}
            for name, value in properties.items()
            if isinstance(value, dict)
            and isinstance(value.get("type"), str)
            and value["type"] in _SIMPLE_TYPES
        }
    return checked
