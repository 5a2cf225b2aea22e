"""What of the messages between a process inside and the engine is forwarded: pure functions over parsed JSON.

Requests are rebuilt from the few fields that are known; a field that is not known is rejected. The engine ignores the
case of names, and so do we. In responses, what is not known to be harmless is left out.
"""

import json
from collections.abc import Mapping
from typing import Any

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.routes import Rejected

OWN_LABELS = frozenset({"ringfence.instance", "ringfence.sandbox"})
"""Labels of ringfence's own containers; those of its images are on every container."""

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
_INFO = (
    "Architecture",
    "CgroupDriver",
    "CgroupVersion",
    "Driver",
    "KernelVersion",
    "MemTotal",
    "NCPU",
    "OSType",
    "OSVersion",
    "OperatingSystem",
    "ServerVersion",
)
"""Fields of the engine's `info`: no names, registries, proxies (with their passwords), plugins or swarms."""
_FILTERS = frozenset(
    {"ancestor", "dangling", "exited", "health", "id", "label", "name", "reference", "status"}
)
"""Not `before` and `since`: they reveal whether a container exists that may not be seen."""
_LOGGED_CHARS = 8192
_HIDDEN = "(hidden by ringfence)"


# --- requests


def exec_body(body: bytes, *, may_choose_user: bool) -> bytes:
    """The body that creates a command in a container.

    Raises:
        Rejected: It requests privileges or another user, or contains an unknown field.
    """
    fields = _parse(body, _EXEC)
    if fields.get("Privileged"):
        raise Rejected(403, "its body is refused: a privileged command is never forwarded")
    if fields.get("User") and not may_choose_user:
        raise Rejected(403, "its body is refused: a command as another user is not granted; grant exec_user")
    if not fields.get("Cmd"):
        raise Rejected(400, "its body is refused: it contains no command")
    for name in ("Privileged", "Detach", "Container"):  # false, or repeats the path
        fields.pop(name, None)
    return json.dumps(fields).encode()


def start_body(body: bytes) -> tuple[bytes, bool]:
    """The body that starts a command, and whether the command is detached.

    Raises:
        Rejected: It contains an unknown field.
    """
    fields = _parse(body or b"{}", _START)
    return json.dumps(fields).encode(), bool(fields.get("Detach"))


def command_of(body: bytes) -> tuple[list[str], str | None]:
    """The command in the result of `exec_body`, cut to what is logged, and its user."""
    fields = json.loads(body)
    words: list[str] = []
    left = _LOGGED_CHARS
    for word in fields["Cmd"]:
        if left <= 0:
            words.append("...")
            break
        words.append(word if len(word) <= left else f"{word[:left]}...")
        left -= len(word) + 1
    return words, fields.get("User") or None


def narrow_filters(filters: str, access: EngineAccess) -> str:
    """The `filters` parameter of a list, restricted to the granted label.

    Raises:
        Rejected: It is not what an engine accepts, or reveals other containers.
    """
    try:
        wanted = json.loads(filters) if filters else {}
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict) or not wanted.keys() <= _FILTERS:
        raise Rejected(400, "its filters cannot be read, or one of them is not forwarded")
    narrowed: dict[str, list[str]] = {}
    for key, values in wanted.items():
        if not isinstance(values, dict | list) or not all(isinstance(value, str) for value in values):
            raise Rejected(400, f"its filter {key!r} is not a list of texts")
        narrowed[key] = list(values)
    narrowed["label"] = [*narrowed.get("label", []), access.label]
    return json.dumps(narrowed)


def _parse(body: bytes, known: Mapping[str, tuple[str, type]]) -> dict[str, Any]:
    try:
        pairs = json.loads(body, object_pairs_hook=list)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise Rejected(400, "its body is refused: it is not a JSON object")
    found: dict[str, Any] = {}
    for key, value in pairs:
        # Not casefold: Go folds two more letters, which are then unknown here.
        name, kind = known.get(key.lower(), ("", object)) if key.isascii() else ("", object)
        if not name:
            raise Rejected(400, f"its body is refused: the field {key[:50]!r} is not known")
        if name in found:
            raise Rejected(400, f"its body is refused: the field {name} occurs twice")
        if value is not None and not _is_of(name, value, kind):
            raise Rejected(400, f"its body is refused: {name} is not a {kind.__name__}")
        if value is not None:
            found[name] = value
    return found


def _is_of(name: str, value: Any, kind: type) -> bool:
    if kind is not list or not isinstance(value, list):
        return isinstance(value, kind)
    element: type = int if name == "ConsoleSize" else str
    return all(isinstance(item, element) and not isinstance(item, bool) for item in value)


# --- responses


def is_visible(thing: Mapping[str, Any], access: EngineAccess) -> bool:
    """Whether a container or image may be seen: it has the granted label, and is no sandbox of ringfence."""
    labels = _labels_of(thing)
    return access.is_on(labels) and not OWN_LABELS & labels.keys()


def visible_only(things: Any, access: EngineAccess) -> list[Any]:
    """A list of containers or images without those that may not be seen."""
    if not isinstance(things, list):
        return []
    return [thing for thing in things if isinstance(thing, dict) and is_visible(thing, access)]


def short_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The harmless fields of `info`."""
    return {key: info[key] for key in _INFO if key in info}


def without_secrets(container: Mapping[str, Any]) -> dict[str, Any]:
    """An inspected container without its environment's values and its log settings, which may contain passwords."""
    config = dict(container.get("Config") or {})
    names = [str(entry).partition("=")[0] for entry in config.get("Env") or []]
    config["Env"] = [f"{name}={_HIDDEN}" for name in names]
    host = dict(container.get("HostConfig") or {})
    host.pop("LogConfig", None)
    return {**container, "Config": config, "HostConfig": host}


def _labels_of(thing: Mapping[str, Any]) -> dict[str, str]:
    config = thing.get("Config")
    found = thing.get("Labels") if "Labels" in thing else (config or {}).get("Labels")
    return {str(key): str(value) for key, value in (found or {}).items()}
