"""Decides how a configured value is shown in the API, in the log and in lists of changes: without secrets.

Hidden are values that came from a variable, the values of environment variables and headers, values whose key says that
they are secret, and in addresses the user and the query. `${secret:NAME}` names a secret without its value and is shown.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.secret import Redactor, environment_secrets, looks_secret, redact_shapes
from ringfence.secret.redact import REPLACEMENT

_REFERENCE = re.compile(r"\$\{secret:[^}]*\}")
_USER = re.compile(r"://(?:[^/?#\s@]*|[^/\s@:]*:[^\s@]*)@")
_QUERY = re.compile(r"(://[^\s?#\"'<>]*[?#])[^\s\"'<>]+")
_SECRET_KEYS = ("secret", "token", "url")
"""Keys of triggers and hooks whose values are secrets, or addresses that are."""
_SECRET_MAPS = ("env", "headers")
"""Mappings whose values are hidden."""


def shown_value(path: KeyPath, value: Any, variables: AbstractSet[KeyPath]) -> Any:
    """Return a configured value without secrets.

    Args:
        path: The keys that lead to the value, from an agent's settings or from `fleet` on.
        value: The value, with its variables replaced.
        variables: The paths of the values that contained a variable, as `Merged.variables`.
    """
    return _redactor(environment_secrets()).redact(_hidden(path, value, variables))


def is_from_variable(path: KeyPath, variables: AbstractSet[KeyPath]) -> bool:
    """Whether the value at a path, or a text that was parsed into a value around it, contained a variable."""
    return any(path[:length] in variables for length in range(1, len(path) + 1))


def _shown_addresses(text: str) -> str:
    """Return a text without the users and the queries of the addresses in it."""
    return _QUERY.sub(rf"\1{REPLACEMENT}", _USER.sub(f"://{REPLACEMENT}@", text))


def _hidden(path: KeyPath, value: Any, variables: AbstractSet[KeyPath]) -> Any:
    if is_from_variable(path, variables):
        return REPLACEMENT
    if isinstance(value, Mapping):
        return {name: _hidden((*path, name), below, variables) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden((*path, index), below, variables) for index, below in enumerate(value)]
    if not isinstance(value, str) or _REFERENCE.fullmatch(value):
        return value
    return REPLACEMENT if _is_secret(path) else redact_shapes(_shown_addresses(value), REPLACEMENT)


def _is_secret(path: KeyPath) -> bool:
    names = [str(part) for part in path if not isinstance(part, int)]
    if names[0] in ("triggers", "hooks", "notify") and names[-1] in _SECRET_KEYS:
        return True
    return looks_secret(names[-1]) or not set(_SECRET_MAPS).isdisjoint(names[:-1])


@lru_cache(maxsize=1)
def _redactor(secrets: tuple[str, ...]) -> Redactor:
    return Redactor(secrets)
