"""Prepares merged raw values for validation: refuses plain secrets, replaces variables, and makes paths absolute."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfence.config.document import KeyPath, Origin
from ringfence.config.environment import expanded, has_password, has_reference, has_variable
from ringfence.config.layer import Merged
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError

_SECRET_HEADER = re.compile(r"(?i)authorization|token|secret|key|password|cookie")
_INCOMING_WEBHOOK = re.compile(
    r"(?i)//hooks\.slack(?:-gov)?\.com/\w+/\w|\bdiscord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/\w"
)
"""Addresses of incoming webhooks of Slack and Discord. Knowing such an address is enough to post there."""
_SCRIPTED = "scripted:"


def prepare_values(merged: Merged, environ: Mapping[str, str], *, prefix: str) -> None:
    """Prepare every text of the merged values, in place, and note which of them contain a variable.

    A text that must be secret has to be a reference. `${VAR}` and `${VAR:-default}` are replaced, and `$$` becomes a
    dollar sign; `${secret:NAME}` stays a reference. A relative path is relative to the file that contains it.

    Args:
        merged: The values as in the files.
        environ: The variables that the files may refer to.
        prefix: The prefix of keys in messages, such as `agents.mender.`.

    Raises:
        ConfigurationError: A secret is in plain text, which the error does not quote; a variable is not set and has no
            default; or a reference is malformed.
    """
    errors: list[RingfenceError] = []

    def prepare(path: KeyPath, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: prepare((*path, key), below) for key, below in value.items()}
        if isinstance(value, list):
            return [prepare((*path, index), below) for index, below in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            _refuse_plain_secret(path, value)
            if has_variable(value):
                merged.variables.add(path)
            return _absolute(path, expanded(value, environ), merged.origin(path))
        except ValueError as exc:
            errors.append(merged.blame(path).error(f"{prefix}{'.'.join(map(str, path))}: {exc}"))
            return value

    merged.values = prepare((), merged.values)
    if errors:
        raise combine(errors)


def _refuse_plain_secret(path: KeyPath, text: str) -> None:
    is_plain, part = False, ""
    match path:
        case ("triggers", _, "secret" | "token") | ("hooks", _, int(), "secret"):
            is_plain = not has_reference(text)
        case ("hooks", _, int(), "headers", str(header)):
            is_plain = _SECRET_HEADER.search(header) is not None and not has_reference(text)
        case ("hooks", _, int(), "url"):
            is_webhook = _INCOMING_WEBHOOK.search(text) is not None and not has_reference(text)
            is_plain, part = is_webhook or has_password(text), " for that part of the address"
        case ("engine" | "repository" | "records", "url"):
            is_plain, part = has_password(text), " for that part of the address"
        case _:
            pass
    if is_plain:
        raise ValueError(f"a secret stands here in plain text; write ${{secret:NAME}} or ${{VARIABLE}}{part}")


def _absolute(path: KeyPath, text: str, origin: Origin) -> str:
    """Make the path absolute that a text is or contains, if its key takes a path."""
    match path:
        case ("workspace",) | ("triggers", _, "path") | ("run", "output_schema") | ("client", "path"):
            scheme = ""
        case ("run", "model") if text.startswith(_SCRIPTED):
            scheme = _SCRIPTED
        case _:
            return text
    file = text.removeprefix(scheme)
    if not file or origin.file is None or "\0" in file:
        return text
    return scheme + os.path.normpath(origin.file.parent.absolute() / Path(file).expanduser())
