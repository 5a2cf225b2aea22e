"""Bodies of requests, built anew from the few fields there are.

The engine reads names in any letter case, and so do we: what is not known by name is refused, never passed on.
"""

import json
from collections.abc import Mapping
from typing import Any

_EXEC = {
    "attachstdin": ("AttachStdin", bool),
    "attachstdout": ("AttachStdout", bool),
    "attachstderr": ("AttachStderr", bool),
    "detachkeys": ("DetachKeys", str),
    "tty": ("Tty", bool),
    "cmd": ("Cmd", list),
    "env": ("Env", list),
    "workingdir": ("WorkingDir", str),
    "consolesize": ("ConsoleSize", list),
    "user": ("User", str),
    "privileged": ("Privileged", bool),
    "detach": ("Detach", bool),
    "container": ("Container", str),
}
_START = {
    "detach": ("Detach", bool),
    "tty": ("Tty", bool),
    "consolesize": ("ConsoleSize", list),
}

_RECORDED_CHARS = 8192


class BadBody(Exception):
    """A body that is not passed on; the text says why."""


def exec_body(body: bytes, *, may_choose_user: bool) -> bytes:
    """The body that makes a command in a container.

    Raises:
        BadBody: It asks for privileges or for another user, or for what is not known.
    """
    fields = _fields(body, _EXEC)
    if fields.get("Privileged"):
        raise BadBody("a privileged command is never passed on")
    if fields.get("User") and not may_choose_user:
        raise BadBody("a command as another user is not granted; grant exec_user")
    if not fields.get("Cmd"):
        raise BadBody("there is no command in it")
    for name in ("Privileged", "Detach", "Container"):  # what clients say besides, and what is in the path
        fields.pop(name, None)
    return json.dumps(fields).encode()


def command_of(body: bytes) -> tuple[list[str], str | None]:
    """What a body that `exec_body` made runs, cut to what goes into a record, and as whom."""
    fields = json.loads(body)
    words: list[str] = []
    left = _RECORDED_CHARS
    for word in fields["Cmd"]:
        if left <= 0:
            words.append("...")
            break
        words.append(word if len(word) <= left else f"{word[:left]}...")
        left -= len(word) + 1
    return words, fields.get("User") or None


def start_body(body: bytes) -> tuple[bytes, bool]:
    """The body that starts a command, and whether it is let go of rather than held.

    Raises:
        BadBody: It says what is not known.
    """
    fields = _fields(body or b"{}", _START)
    return json.dumps(fields).encode(), bool(fields.get("Detach"))


def _fields(body: bytes, known: Mapping[str, tuple[str, type]]) -> dict[str, Any]:
    try:
        pairs = json.loads(body, object_pairs_hook=list)
    except (ValueError, RecursionError) as exc:
        raise BadBody("it is no JSON") from exc
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise BadBody("it is no JSON object")
    found: dict[str, Any] = {}
    for key, value in pairs:
        # Not casefold: Go folds two more letters, which are then not known here.
        name, kind = known.get(key.lower(), ("", object)) if key.isascii() else ("", object)
        if not name:
            raise BadBody(f"it says {key[:50]!r}, which is not known")
        if name in found:
            raise BadBody(f"it says {name} twice")
        if value is not None:
            found[name] = _checked(name, value, kind)
    return found


def _checked(name: str, value: Any, kind: type) -> Any:
    element: type = int if name == "ConsoleSize" else str
    is_good = isinstance(value, kind)
    if kind is list and is_good:
        is_good = all(isinstance(item, element) and not isinstance(item, bool) for item in value)
    if not is_good:
        raise BadBody(f"its {name} is not a {kind.__name__}")
    return value
