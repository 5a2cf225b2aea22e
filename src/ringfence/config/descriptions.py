"""What the keys of the configuration mean, read from the docstrings below them when somebody asks.

pydantic can do that by itself (`use_attribute_docstrings`), but as the models are made: that took 55 ms of each start.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from ringfence.config.model import Settings


@cache
def describe(root: type[BaseModel] = Settings) -> None:
    """Give the fields of a model and of those below it their descriptions, and schemas made later too."""
    models = list(dict.fromkeys(_models(root)))
    for model in models:
        for name, text in _docstrings(model).items():
            if name in model.model_fields and model.model_fields[name].description is None:
                model.model_fields[name].description = text
    for model in reversed(models):
        model.model_rebuild(force=True)


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """A model and those of its fields, wherever they stand in a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for info in kind.model_fields.values():
            yield from _models(info.annotation)
    for part in get_args(kind):
        yield from _models(part)


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The strings that stand below a model's fields, its bases' too."""
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
