"""Schemas that agents are held to."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.loop.role.test_parsing import verdict

from ringfence.loop.role import JUDGE, ROLES

KNOWN = {
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "anyOf",
    "$ref",
    "description",
    "additionalProperties",
    "$defs",
}


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it."""
    yield schema
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", []),
    ]
    for each in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schemas(each)


@pytest.mark.parametrize("role", ROLES)
def test_schemas_are_strict(role):
    """Every object requires all its properties and allows no other, and no word is used that strict modes refuse."""
    schema = ROLES[role].schema
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    for each in schemas(schema):
        assert set(each) <= KNOWN
        assert "$ref" not in each or set(each) == {"$ref"}
        if each.get("type") == "object":
            assert each["additionalProperties"] is False
            assert each["required"] == list(each["properties"])


def test_a_verdict_by_the_schema_is_one():
    """What the schema lets through has the form that is read, and what lacks a property does not get through."""
    validator = Draft202012Validator(JUDGE.schema)
    assert validator.is_valid(verdict())
    assert not validator.is_valid({**verdict(), "more": 1})
    assert not validator.is_valid({"overall": "pass", "criteria": []})
    assert json.loads(json.dumps(JUDGE.schema)) == JUDGE.schema
