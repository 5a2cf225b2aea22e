"""The base class of models that a program constructs with keyword arguments, and pydantic's errors in our own words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from ringfence.errors import UsageError

_NOT_A = {
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "model_attributes_type": "a mapping",
    "union_tag_not_found": "a mapping",
    "path_type": "a path",
    "finite_number": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
}
"""What a value should be, by pydantic's type of error."""
OUT_OF_RANGE = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
"""Pydantic's types of error for a bound: where it keeps the bound, and the words for it."""


class Arguments(BaseModel):
    """A frozen model that reports invalid arguments as a `UsageError` of one line.

    Raises:
        UsageError: An argument is unknown, or its value does not fit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # for type checkers, this signature would hide the fields

        def __init__(self, **arguments: Any) -> None:
            """Check the arguments."""
            try:
                super().__init__(**arguments)
            except ValidationError as exc:
                problems = "; ".join(
                    _describe(detail, type(self)) for detail in exc.errors(include_url=False)
                )
                raise UsageError(f"{type(self).__name__}: {problems}") from None


def _describe(detail: ErrorDetails, model: type[BaseModel]) -> str:
    name = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        return f"there is no argument {name!r}; {_hint(detail['loc'], model)}"
    if detail["type"] == "missing":
        return f"the argument {name!r} is missing"
    if detail["type"] == "value_error":
        return f"{name}={shown(detail['input'])}: {detail['msg'].removeprefix('Value error, ')}"
    return f"{name}={shown(detail['input'])} {complaint_about(detail)}"


def _hint(place: tuple[str | int, ...], model: type[BaseModel]) -> str:
    # Imported here because only errors need it, and it imports the models of the configuration.
    from ringfence.config.fields import known_keys
    from ringfence.config.names import nearest

    known = known_keys(place[:-1], model)
    guess = nearest(str(place[-1]), known)
    return f"did you mean {guess!r}?" if guess else f"the arguments are {', '.join(known)}"


def complaint_about(detail: ErrorDetails) -> str:
    """Return what is wrong with a value, to follow the value in a sentence."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _NOT_A:
        return f"is not {_NOT_A[kind]}"
    if kind in OUT_OF_RANGE:
        key, words = OUT_OF_RANGE[kind]
        return f"is out of range: it must be {words} {context[key]:g}"
    if kind == "literal_error":
        return f"is not one of {context['expected']}"
    return f"is not valid: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def shown(value: Any) -> str:
    """Return a value for messages, at most 80 characters."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, float):
        return f"{value:.12g}"
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 256 else "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."
