"""From merged raw values to `Settings`, with every complaint at the place it is about."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ringfence.config.document import DEFAULT, KeyPath, Origin
from ringfence.config.fields import known_keys, nearest
from ringfence.config.layer import Merged
from ringfence.config.model import Settings
from ringfence.config.secret_reference import holds_a_secret
from ringfence.errors import ConfigurationError, RingfenceError, UsageError

_SHOWN_COMPLAINTS = 8
_LONGEST_NAME = 64


Model = TypeVar("Model", bound=BaseModel)


def fitted(merged: Merged, model: type[Model], *, of: str = "", place: Origin = DEFAULT) -> Model:
    """The merged values as a model; what does not fit is told at its place.

    Args:
        merged: The values.
        model: What they should be.
        of: What stands before keys in messages, such as `agents.reviewer.`.
        place: Where the whole was said, for what is wrong with no key of it alone.

    Raises:
        ConfigurationError: At the place of the first complaint; the others follow in the text.
        UsageError: The same, where every complaint is about a flag.
    """
    _refuse_plain_secrets(merged)
    try:
        return model.model_validate(merged.values)
    except ValidationError as exc:
        details = exc.errors(include_url=False)
        raise combine([_complaint(detail, merged, model, of, place) for detail in details]) from None


def validate(merged: Merged) -> Settings:
    """Check the merged values of a run. Raises as `fitted`."""
    settings = fitted(merged, Settings)
    refuse_unnamed_loosenings(settings, merged)
    return settings


def refuse_unnamed_loosenings(settings: Settings, merged: Merged) -> None:
    """See that a file which opens the fence says so beside it.

    Raises:
        ConfigurationError: It does not.
    """
    origin = merged.origin(("sandbox", "backend"))
    if settings.sandbox.backend == "host" and origin.is_file and "host_backend" not in settings.unsafe:
        raise origin.error(
            "sandbox.backend: 'host' is no fence; say `unsafe: [host_backend]` beside it, "
            "or ask for it at each call with --sandbox host"
        )
    for index, rule in enumerate(settings.egress.allow):
        origin = merged.origin(("egress", "allow", index))
        if rule.preset == "open" and origin.is_file and "egress" not in settings.unsafe:
            raise origin.error(
                "egress.allow: 'open' lets those inside reach every public host; say `unsafe: [egress]` beside it, "
                "name hosts instead, or ask for it at each call with --allow open"
            )
    origin = merged.origin(("sandbox", "fallback"))
    if settings.sandbox.fallback == "host" and origin.is_file and "host_backend" not in settings.unsafe:
        raise origin.error(
            "sandbox.fallback: 'host' is no fence; say `unsafe: [host_backend]` beside it, or leave it out"
        )
    origin = merged.origin(("auth",))
    if settings.auth == "inject" and origin.is_file and "auth_inject" not in settings.unsafe:
        raise origin.error(
            "auth: 'inject' puts your credentials inside the fence; say `unsafe: [auth_inject]` beside it, "
            "or ask for it at each call with --auth inject"
        )


def combine(complaints: list[RingfenceError], *, advice: str = "") -> RingfenceError:
    """One error out of several: the first in a file, or else the first, with the texts of the others."""
    complaints = sorted(complaints, key=_rank)
    first, others = complaints[0], complaints[1:]
    if not others and not advice:
        return first
    texts = [str(other) for other in others[: _SHOWN_COMPLAINTS - 1]]
    if len(others) > len(texts):
        texts.append(f"{len(others) - len(texts)} more")
    tail = "".join(f"; also {text}" for text in texts) + (f"; {advice}" if advice else "")
    made: RingfenceError = UsageError(str(first) + tail)
    if isinstance(first, ConfigurationError):
        made = ConfigurationError(first.message + tail, file=first.file, line=first.line, column=first.column)
    made.gathered = tuple(complaints)
    return made


def _rank(error: RingfenceError) -> tuple[int, str, int, int]:
    if not isinstance(error, ConfigurationError):
        return (2, "", 0, 0)
    return (int(error.file is None), str(error.file), error.line or 0, error.column or 0)


def _complaint(
    detail: ErrorDetails, merged: Merged, model: type[BaseModel], of: str, place: Origin
) -> RingfenceError:
    path = _written(tuple(part for part in detail["loc"] if part != "[key]"), merged.values)
    unknown = detail["type"] == "extra_forbidden"
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "type")
    origin = merged.blame(path, of_key=unknown or "[key]" in detail["loc"])
    origin = place if origin == DEFAULT else origin
    if unknown:
        return origin.error(of + _unknown_key(path, model, merged.values))
    key = (of + ".".join(str(part) for part in path)).rstrip(".")
    if detail["type"] == "missing" or (
        detail["type"] == "union_tag_not_found" and isinstance(detail["input"], Mapping)
    ):
        return origin.error(f"{key} is missing; write it")
    if path[:1] == ("secrets",):
        return origin.error(f"{_shown_key(path)}: {_reason_without_value(detail)}")
    return origin.error(f"{key}: {_reason(detail)}" if key else _reason(detail))


def _written(path: KeyPath, values: Any) -> KeyPath:
    """A path as it stands in the file: without the kind that pydantic chose by a `type`, which it puts in between."""
    found: list[str | int] = []
    is_kind_passed = False
    for part in path:
        if (
            not is_kind_passed
            and isinstance(values, Mapping)
            and part not in values
            and values.get("type") == part
        ):
            is_kind_passed = True
            continue
        is_kind_passed = False
        found.append(part)
        if isinstance(values, Mapping):
            values = values.get(str(part))
        else:
            values = values[part] if isinstance(values, list) and isinstance(part, int) else None
    return tuple(found)


def _refuse_plain_secrets(merged: Merged) -> None:
    """A file that holds a key or token of a well-known form is refused, without quoting it."""
    complaints = [
        origin.error(
            f"{_shown_key(path)}: a secret stands here in plain text; put it where only you can read it and name "
            "that under `secrets:`, as `NAME: file:/PATH`"
        )
        for path, text in _texts((), merged.values)
        if holds_a_secret(text) and (origin := merged.origin(path)).is_file
    ]
    if complaints:
        raise combine(complaints)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield (*path, key), str(key)
            yield from _texts((*path, key), below)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts((*path, index), below)


def _shown_key(path: KeyPath) -> str:
    """A key that may itself be a secret, written in the wrong place."""
    return ".".join(
        "..." if holds_a_secret(str(part)) or len(str(part)) > _LONGEST_NAME else str(part) for part in path
    )


def _unknown_key(path: KeyPath, model: type[BaseModel], values: Any) -> str:
    for part in path[:-1]:
        values = values[part]
    known = known_keys(path[:-1], model, of_type=values.get("type"))
    guess = nearest(str(path[-1]), known)
    hint = f"did you mean {guess!r}?" if guess else f"known here: {', '.join(known)}"
    return f"{'.'.join(str(part) for part in path)}: there is no key {path[-1]!r}; {hint}"


def _reason(detail: ErrorDetails) -> str:
    cause = detail.get("ctx", {}).get("error")
    if detail["type"] == "value_error" and isinstance(cause, ValueError):
        return str(cause)
    if detail["type"] == "union_tag_invalid":
        tag, known = detail["ctx"]["tag"], detail["ctx"]["expected_tags"]
        return f"{tag!r} is none of {known}{_hint(tag, known)}"
    hint = _hint(detail["input"], detail["ctx"]["expected"]) if detail["type"] == "literal_error" else ""
    return f"{_shown(detail['input'])} does not fit: {_message(detail)}{hint}"


def _hint(word: object, known: str) -> str:
    """What of quoted words was probably meant."""
    guess = nearest(word, re.findall(r"'([^']*)'", known)) if isinstance(word, str) else None
    return f"; did you mean {guess!r}?" if guess else ""


def _reason_without_value(detail: ErrorDetails) -> str:
    """What is wrong about a reference; what was written in its place may be the secret."""
    cause = detail.get("ctx", {}).get("error")
    if detail["type"] == "value_error" and isinstance(cause, ValueError):
        return str(cause)
    return f"it does not fit: {_message(detail)}"


def _message(detail: ErrorDetails) -> str:
    if detail["type"] in ("tuple_type", "list_type"):
        return "input should be a list"
    if detail["type"] in ("model_type", "dict_type", "model_attributes_type", "union_tag_not_found"):
        return "input should be a mapping"
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 256 else "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."
