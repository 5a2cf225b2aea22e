"""Models that a program builds by keyword arguments."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringfence.errors import UsageError

_SHOWN_CHARS = 80
_PROBLEMS = {
    "greater_than": "it must be more than {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be less than {lt:g}",
    "less_than_equal": "it must be at most {le:g}",
    "literal_error": "it is none of {expected}",
    "string_pattern_mismatch": "it does not match {pattern}",
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "it is no number"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "it is no whole number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "it is neither True nor False"),
    **dict.fromkeys(("path_type", "path_parsing"), "it is no path"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "it is no mapping"),
    **dict.fromkeys(("tuple_type", "list_type"), "it is no list or tuple"),
    "string_type": "it is no text",
}
"""In words for pydantic's types of errors, with their contexts; of others, pydantic's text is shown."""


class Arguments(BaseModel):
    """A frozen model that reports invalid arguments as a `UsageError` of one line.

    Raises:
        UsageError: An argument is unknown, or its value does not fit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # a signature of its own would hide the fields

        def __init__(self, **arguments: Any) -> None:
            """Check the arguments."""
            try:
                super().__init__(**arguments)
            except ValidationError as exc:
                problems = "; ".join(_line(detail) for detail in exc.errors(include_url=False))
                raise UsageError(f"{type(self).__name__}: {problems}") from None


def _line(detail: Any) -> str:
    name = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        return f"there is no argument {name!r}"
    if detail["type"] == "missing":
        return f"the argument {name!r} is missing"
    value = repr(detail["input"])
    shown = value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."
    problem = detail["msg"].removeprefix("Value error, ")
    if detail["type"] in _PROBLEMS:
        problem = _PROBLEMS[detail["type"]].format(**detail.get("ctx", {}))
    return f"{name}={shown}: {problem}"
