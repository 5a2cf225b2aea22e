"""Secrets that stand in a file in plain text: refused before anything is put in for a reference, at their place."""

import re
from collections.abc import Iterator
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.environment import has_password, has_reference
from ringfence.config.layer import Merged
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError

_SECRETS = ("secret", "token")
_INCOMING = re.compile(
    r"(?i)//hooks\.slack(?:-gov)?\.com/\w+/\w|\bdiscord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/\w"
)
"""Addresses of Slack's and Discord's incoming webhooks: whoever knows one can write there."""
_NAMES = re.compile(r"(?i)authorization|token|secret|key|password|cookie")


def refuse_plain(merged: Merged, *, of: str) -> None:
    """See that what must be secret is a reference.

    Args:
        merged: As it stands in the files.
        of: What stands before the keys in messages: `agents.a.`.

    Raises:
        ConfigurationError: A secret is written out; its text does not hold it.
    """
    complaints: list[RingfenceError] = []
    for path in _places(merged.values):
        where = ".".join(map(str, path))
        part = " for that part of the address" if path[-1] == "url" else ""
        complaints.append(
            merged.blame(path).error(
                f"{of}{where}: a secret stands here in plain text; write ${{secret:NAME}} or ${{VARIABLE}}{part}"
            )
        )
    if complaints:
        raise combine(complaints)


def _places(values: dict[str, Any]) -> Iterator[KeyPath]:
    for name, trigger in _items(values, "triggers"):
        for key in _SECRETS:
            if _is_plain(trigger, key):
                yield ("triggers", name, key)
    for point, hooks in _items(values, "hooks"):
        yield from _of_hooks(point, hooks)
    for section, key in (("engine", "url"), ("repository", "url")):
        for name, url in _items(values, section):
            if name == key and isinstance(url, str) and has_password(url):
                yield (section, key)


def _of_hooks(point: str, hooks: Any) -> Iterator[KeyPath]:
    for index, hook in enumerate(hooks if isinstance(hooks, list) else ()):
        if _is_plain(hook, "secret"):
            yield ("hooks", point, index, "secret")
        url = hook.get("url") if isinstance(hook, dict) else None
        if isinstance(url, str) and (has_password(url) or (_is_plain(hook, "url") and _INCOMING.search(url))):
            yield ("hooks", point, index, "url")
        for header, _ in _items(hook, "headers"):
            if _NAMES.search(str(header)) and _is_plain(hook["headers"], header):
                yield ("hooks", point, index, "headers", header)


def _items(values: Any, key: str) -> Iterator[tuple[str, Any]]:
    below = values.get(key) if isinstance(values, dict) else None
    yield from below.items() if isinstance(below, dict) else ()


def _is_plain(values: Any, key: str) -> bool:
    value = values.get(key) if isinstance(values, dict) else None
    return isinstance(value, str) and not has_reference(value)
