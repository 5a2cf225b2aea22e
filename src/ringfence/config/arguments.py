"""Models that a program builds by keyword arguments."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringfence.errors import UsageError

_SHOWN_CHARS = 80


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
    value = repr(detail["input"])
    shown = value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."
    problem = detail["msg"].removeprefix("Value error, ")
    return f"{name}={shown}: {problem}"
