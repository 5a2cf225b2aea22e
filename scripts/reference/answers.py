"""The form of a JSON answer, in a few lines that a person reads."""

import json
from collections.abc import Mapping
from typing import Any

_WORDS = {"string": "text", "integer": "number", "boolean": "true or false", "null": "null"}


def shape(schema: Mapping[str, Any], indent: str = "") -> str:
    """An example of what a strict JSON schema lets through, with words in place of values."""
    return _shape(schema, schema.get("$defs", {}), indent)


def _shape(schema: Mapping[str, Any], known: Mapping[str, Any], indent: str) -> str:
    if "$ref" in schema:
        return _shape(known[schema["$ref"].rpartition("/")[2]], known, indent)
    if "anyOf" in schema:
        return " | ".join(_shape(each, known, indent) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    if schema["type"] == "array":
        return f"[{_shape(schema['items'], known, indent)}, ...]"
    if schema["type"] == "object":
        deeper = f"{indent}  "
        fields = [
            f'{deeper}"{name}": {_shape(each, known, deeper)}' for name, each in schema["properties"].items()
        ]
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    return _WORDS[schema["type"]]
