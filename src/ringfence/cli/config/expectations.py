"""A file of expectations about the policy: what should be reached from inside, and what should not."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringfence.errors import ConfigurationError

if TYPE_CHECKING:
    from ringfence.config.document import Document

_SHAPE = "{url: ADDRESS, allowed: true or false}, and perhaps method"


class Expectation(BaseModel):
    """One of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    url: str
    allowed: bool
    method: str = "GET"


def read_expectations(file: Path) -> list[Expectation]:
    """The expectations in a file.

    Raises:
        ConfigurationError: It cannot be read, or an item is none; with its place.
    """
    from ringfence.config.document import read_regular_file
    from ringfence.config.yaml import parse_list

    items, document = parse_list(read_regular_file(file, follow_link=True), file)
    if not items:
        raise ConfigurationError("it holds no expectation; write a list of " + _SHAPE, file=file)
    return [_expectation(item, index, document) for index, item in enumerate(items)]


def _expectation(item: Any, index: int, document: "Document") -> Expectation:
    from ringfence.egress.proxy.decision import parse_target

    place = document.place((index,))
    try:
        found = Expectation.model_validate(item)
        parse_target(found.url, found.method)
    except ValidationError as exc:
        detail = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        reason = f"{where}: {detail['msg'].lower()}; an expectation is {_SHAPE}"
    except ValueError as exc:
        reason = str(exc)
    else:
        return found
    raise ConfigurationError(reason, file=document.file, line=place.line, column=place.column)
