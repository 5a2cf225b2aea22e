"""Generates the commented file of `ringfence init` and the JSON Schema from the models.

The descriptions are the docstrings below the models' fields, and this module reads them on demand. Pydantic can read
them itself (`use_attribute_docstrings`), but does so when a model is defined, which took 55 ms of each start.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from ringfence.config.fields import Field, all_fields, sections
from ringfence.config.model import Settings

SCHEMA_FILE_NAME = "ringfence.schema.json"

_WIDTH = 100
_HEAD = f"""\
# yaml-language-server: $schema=./{SCHEMA_FILE_NAME}
#
# Configuration of ringfence for this project. Every key stands here commented out, with its default: take the
# '#' away from a key and from the section above it to change it.
#
# Stronger than this file: command-line options, then RINGFENCE_* variables (RINGFENCE_SANDBOX__MEMORY=1g).
# Weaker: your own file, ~/.config/ringfence/ringfence.yaml.
#
# Until you run `ringfence config trust` on its present content, this file can only tighten: lower limits, add
# protected paths, and the like. See what holds, and why: `ringfence config show --origin`.
"""


def commented_file() -> str:
    """Return a `ringfence.yaml` with every key described and commented out."""
    describe()
    fields = list(all_fields().values())
    lines = [_HEAD]
    named = set()
    for name, description, _ in sections():
        named.add(name)
        lines += [*_comment(description, ""), f"#{name}:"]
        for field in fields:
            if field.path[0] == name:
                lines += _setting(field, "  ")
        lines.append("")
    for field in fields:
        if field.path[0] not in named:
            lines += [*_setting(field, ""), ""]
    return "\n".join(lines).rstrip() + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `ringfence.yaml`, for editors and other programs."""
    describe()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(mode="validation"),
    }


def _setting(field: Field, indent: str) -> list[str]:
    description = " ".join((field.info.description or "").split())
    return [*_comment(description, indent), f"#{indent}{field.path[-1]}: {field.written(field.default)}"]


def _comment(text: str, indent: str) -> list[str]:
    start = f"#{indent}# " if indent else "# "
    return [start + line for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]


@cache
def describe(root: type[BaseModel] = Settings) -> None:
    """Set the descriptions of the fields of a model and of its nested models; later schemas include them."""
    models = list(dict.fromkeys(_models(root)))
    for model in models:
        for name, text in _docstrings(model).items():
            if name in model.model_fields and model.model_fields[name].description is None:
                model.model_fields[name].description = text
    for model in reversed(models):
        model.model_rebuild(force=True)


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield a model and all models in the types of its fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for info in kind.model_fields.values():
            yield from _models(info.annotation)
    for part in get_args(kind):
        yield from _models(part)


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a model and of its bases."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            assert isinstance(body, ast.ClassDef)
            for statement, below in zip(body.body, body.body[1:], strict=False):
                match statement, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found[name] = inspect.cleandoc(text)
                    case _:
                        pass
    return found
