"""Validates merged raw values into `Settings`; each error has the position of its value."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ringfence.config.arguments import OUT_OF_RANGE, complaint_about, shown
from ringfence.config.document import DEFAULT, KeyPath, Origin
from ringfence.config.fields import all_fields, known_keys
from ringfence.config.layer import Merged
from ringfence.config.model import Settings
from ringfence.config.names import nearest
from ringfence.config.restriction import weaknesses
from ringfence.config.secret_reference import holds_a_secret
from ringfence.errors import ConfigurationError, RingfenceError, UsageError

_MAX_SHOWN_ERRORS = 8
_LONGEST_NAME = 64


Model = TypeVar("Model", bound=BaseModel)


def fitted(merged: Merged, model: type[Model], *, of: str = "", place: Origin = DEFAULT) -> Model:
    """Return the merged values as a model; each error has the position of its value.

    Args:
        merged: The values.
        model: The model of the values.
        of: The prefix of keys in messages, such as `agents.reviewer.`.
        place: The origin of all values, for errors that concern no single key.

    Raises:
        ConfigurationError: A value is invalid. The error has the position of the first one; its text names the others.
        UsageError: Only flags are invalid.
    """
    _refuse_plain_secrets(merged)
    try:
        return model.model_validate(merged.values)
    except ValidationError as exc:
        details = exc.errors(include_url=False)
        raise combine([_error_of(detail, merged, model, of, place) for detail in details]) from None


def validate(merged: Merged) -> Settings:
    """Validate the merged values of a run. Raises the errors of `fitted`."""
    settings = fitted(merged, Settings)
    check_combinations(settings, merged)
    return settings


def check_combinations(settings: Settings, merged: Merged) -> None:
    """Check that a file which opens the fence also names this in `unsafe`, and that no setting cancels another.

    Raises:
        ConfigurationError: A loosening is not named, or two settings contradict each other.
        UsageError: Only flags are concerned.
    """
    for weak in weaknesses(settings):
        origin = merged.origin(weak.path)
        if weak.loosening is not None and origin.is_file and weak.loosening not in settings.unsafe:
            named = f"write `unsafe: [{weak.loosening}]` beside it"
            raise origin.error(f"{weak.key}: with this value {weak.text}; {named}, {weak.alternative}")
    origin = merged.origin(("sandbox", "fallback"))
    if settings.sandbox.fallback == "host" and origin.is_file and "host_backend" not in settings.unsafe:
        raise origin.error(
            "sandbox.fallback: with 'host' commands may run without a sandbox; write `unsafe: [host_backend]` beside "
            "it, or leave it out"
        )
    network = settings.sandbox.network
    if network != "none" and settings.egress.deny:
        raise merged.origin(("egress", "deny")).error(
            f"egress.deny has no effect with sandbox.network {network!r}, which "
            f"{merged.origin(('sandbox', 'network'))} sets and which programs reach without the gate; remove one of the "
            "two"
        )


def combine(errors: list[RingfenceError], *, advice: str = "") -> RingfenceError:
    """Return the first of several errors, with the texts of the others; errors in files precede other errors."""
    errors = sorted(errors, key=_rank)
    first, others = errors[0], errors[1:]
    if not others and not advice:
        return first
    texts = [str(other) for other in others[: _MAX_SHOWN_ERRORS - 1]]
    if len(others) > len(texts):
        texts.append(f"{len(others) - len(texts)} more")
    tail = "".join(f"; also {text}" for text in texts) + (f"; {advice}" if advice else "")
    combined: RingfenceError = UsageError(str(first) + tail)
    if isinstance(first, ConfigurationError):
        combined = ConfigurationError(
            first.message + tail, file=first.file, line=first.line, column=first.column
        )
    combined.gathered = tuple(errors)
    return combined


def _rank(error: RingfenceError) -> tuple[int, str, int, int]:
    if not isinstance(error, ConfigurationError):
        return (2, "", 0, 0)
    return (int(error.file is None), str(error.file), error.line or 0, error.column or 0)


def _error_of(
    detail: ErrorDetails, merged: Merged, model: type[BaseModel], of: str, place: Origin
) -> RingfenceError:
    path = _path_in_file(tuple(part for part in detail["loc"] if part != "[key]"), merged.values)
    unknown = detail["type"] == "extra_forbidden"
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "type")
    origin = merged.blame(path, of_key=unknown or "[key]" in detail["loc"])
    origin = place if origin == DEFAULT else origin
    key = _key_of(path, origin, of)
    if unknown:
        return origin.error(f"{key}: {_unknown_key(path, model, merged.values)}")
    if detail["type"] == "missing" or (
        detail["type"] == "union_tag_not_found" and isinstance(detail["input"], Mapping)
    ):
        return origin.error(f"{key} is missing; write it")
    reason = _reason(detail, path)
    return origin.error(f"{key}: {reason}" if key else reason)


def _key_of(path: KeyPath, origin: Origin, of: str) -> str:
    """Return the key of a value for messages, without what the name of its flag or variable already says."""
    if not origin.path:
        return (of + _shown_key(path)).rstrip(".")
    keys = path[len(origin.path) :]
    return "" if len(keys) == 1 and isinstance(keys[0], int) else _shown_key(keys)


def _path_in_file(path: KeyPath, values: Any) -> KeyPath:
    """Return a path as in the file, without the `type` that pydantic inserts for a tagged union."""
    parts: list[str | int] = []
    is_type_skipped = False
    for part in path:
        if (
            not is_type_skipped
            and isinstance(values, Mapping)
            and part not in values
            and values.get("type") == part
        ):
            is_type_skipped = True
            continue
        is_type_skipped = False
        parts.append(part)
        if isinstance(values, Mapping):
            values = values.get(str(part))
        else:
            values = values[part] if isinstance(values, list) and isinstance(part, int) else None
    return tuple(parts)


def _refuse_plain_secrets(merged: Merged) -> None:
    """Refuse a file that contains a key or token of a well-known form, without quoting it."""
    errors = [
        origin.error(
            f"{_shown_key(path)}: a secret stands here in plain text; put it where only you can read it and name "
            "that under `secrets:`, as `NAME: file:/PATH`"
        )
        for path, text in _texts((), merged.values)
        if holds_a_secret(text) and (origin := merged.origin(path)).is_file
    ]
    if errors:
        raise combine(errors)


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
    """Return a key for messages; a part that may itself be a secret is replaced by dots."""
    return ".".join(
        "..." if holds_a_secret(str(part)) or len(str(part)) > _LONGEST_NAME else str(part) for part in path
    )


def _unknown_key(path: KeyPath, model: type[BaseModel], values: Any) -> str:
    for part in path[:-1]:
        values = values[part]
    known = known_keys(path[:-1], model, of_type=values.get("type"))
    guess = nearest(str(path[-1]), known)
    hint = f"did you mean {guess!r}?" if guess else f"known here: {', '.join(known)}"
    return f"there is no key {path[-1]!r}; {hint}"


def _reason(detail: ErrorDetails, path: KeyPath) -> str:
    cause = detail.get("ctx", {}).get("error")
    if detail["type"] == "value_error" and isinstance(cause, ValueError):
        return str(cause)
    if detail["type"] == "union_tag_invalid":
        tag, known = detail["ctx"]["tag"], detail["ctx"]["expected_tags"]
        return f"{tag!r} is not one of {known}{_hint(tag, known)}"
    if path[:1] == ("secrets",):  # the value may be the secret itself
        return f"the value {complaint_about(detail)}"
    hint = _hint(detail["input"], detail["ctx"]["expected"]) if detail["type"] == "literal_error" else ""
    return f"{shown(detail['input'])} {complaint_about(detail)}{hint}{_example(detail, path)}"


def _example(detail: ErrorDetails, path: KeyPath) -> str:
    """Return the default of a number that is out of range, as an example."""
    field = all_fields().get(".".join(map(str, path)))
    is_shown = field is not None and detail["type"] in OUT_OF_RANGE and field.default is not None
    return f", such as {field.default:g}" if field is not None and is_shown else ""


def _hint(word: object, known: str) -> str:
    """Return a hint to the quoted word of `known` that `word` probably means."""
    guess = nearest(word, re.findall(r"'([^']*)'", known)) if isinstance(word, str) else None
    return f"; did you mean {guess!r}?" if guess else ""
