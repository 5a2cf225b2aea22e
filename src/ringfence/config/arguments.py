"""The base class of models that a program constructs with keyword arguments."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringfence.errors import UsageError

_MAX_SHOWN_CHARS = 80
_PROBLEMS = {
    "greater_than": "it must be more than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be less than {lt:g}",
    "less_than_equal": "it must be at most {le:g}",
    "literal_error": "it is not one of {expected}",
    "string_pattern_mismatch": "it does not match {pattern}",
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "it is not a number"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "it is not an integer"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "it is neither True nor False"),
    **dict.fromkeys(("path_type", "path_parsing"), "it is not a path"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "it is not a mapping"),
    **dict.fromkeys(("tuple_type", "list_type"), "it is not a list or tuple"),
    "string_type": "it is not a text",
}
"""Texts for pydantic's error types, formatted with their contexts. For other types, pydantic's text is shown."""


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
                problems = "; ".join(_describe(detail) for detail in exc.errors(include_url=False))
                raise UsageError(f"{type(self).__name__}: {problems}") from None


def _describe(detail: Any) -> str:
    name = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        return f"there is no argument {name!r}"
    if detail["type"] == "missing":
        return f"the argument {name!r} is missing"
    value = repr(detail["input"])
    shown = value if len(value) <= _MAX_SHOWN_CHARS else f"{value[:_MAX_SHOWN_CHARS]}..."
    problem = detail["msg"].removeprefix("Value error, ")
    if detail["type"] in _PROBLEMS:
        problem = _PROBLEMS[detail["type"]].format(**detail.get("ctx", {}))
    return f"{name}={shown}: {problem}"
