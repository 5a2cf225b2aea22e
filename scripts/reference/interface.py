"""The daemon's interface, from its OpenAPI description."""

from pathlib import Path
from typing import Any

from reference.markdown import code, table
from ringfence.fleet.api.app import create_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.api.error_responses import RESPONSES


def operations() -> str:
    """Tables: the operations, what each may be refused with, and what stands in bodies and answers."""
    said = create_app(ApiContext(Path())).openapi()
    paths: dict[str, dict[str, dict[str, Any]]] = said["paths"]
    rows = [
        (method.upper(), code(_path(path, each)), each.get("description", ""), _given(each), _answers(each))
        for path, methods in paths.items()
        for method, each in methods.items()
    ]
    refusals = [(status, answer["description"]) for status, answer in RESPONSES.items()]
    return "\n".join(
        [
            table(("method", "path", "does", "takes", "answers"), rows),
            "`/metrics` besides has figures for Prometheus. Each operation may be refused:\n",
            table(("status", "why"), refusals),
            "What stands in bodies and answers:\n",
            table(("name", "is", "fields"), _schemas(said["components"]["schemas"])),
        ]
    )


def _path(path: str, operation: dict[str, Any]) -> str:
    """The path, with the words that a part of it may be."""
    for each in operation.get("parameters", ()):
        words = each["schema"].get("enum", ())
        if each["in"] == "path" and words:
            path = path.replace(f"{{{each['name']}}}", "|".join(words))
    return path


def _given(operation: dict[str, Any]) -> str:
    names = [code(each["name"]) for each in operation.get("parameters", ()) if each["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return ", ".join([*names, *([_named(body)] if body else [])])


def _answers(operation: dict[str, Any]) -> str:
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            kinds = [_kind(name, kind["schema"]) for name, kind in answer.get("content", {}).items() if kind]
            return f"{status} {', '.join(kinds) or 'an event on each line'}"
    return ""


def _kind(media: str, schema: dict[str, Any]) -> str:
    return _named(schema) or ("`null`" if media == "application/json" else media)


def _named(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "array":
        return f"list of {_named(schema['items'])}"
    return "text" if schema.get("type") == "string" else ""


def _schemas(schemas: dict[str, dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (code(name), schema.get("description", ""), ", ".join(map(code, schema["properties"])))
        for name, schema in schemas.items()
        if "properties" in schema and not name.startswith(("HTTP", "Validation"))
    ]
