"""Filters requests to and responses from the container engine. Pure functions over parsed JSON.

A request is rebuilt from the few known fields; an unknown field is rejected. The engine ignores the case of field names,
and so do these functions. Of a response, only fields that are known to be harmless are forwarded.
"""

import json
from collections.abc import Mapping
from typing import Any

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.routes import Rejected

OWN_LABELS = frozenset({"ringfence.instance", "ringfence.sandbox"})
"""Labels of ringfence's own containers. The labels of its images are not among them: every container has those."""

_EXEC_FIELDS = {
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
_START_FIELDS = {
    "detach": ("Detach", bool),
    "tty": ("Tty", bool),
    "consolesize": ("ConsoleSize", list),
}
_INFO_FIELDS = (
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
    """Rebuild the body of a request that creates a command in a container.

    Raises:
        Rejected: It requests privileges or another user, or contains an unknown field.
    """
    fields = _parse(body, _EXEC_FIELDS)
    if fields.get("Privileged"):
        raise Rejected(403, "its body is refused: a privileged command is never forwarded")
    if fields.get("User") and not may_choose_user:
        raise Rejected(403, "its body is refused: a command as another user is not granted; grant exec_user")
    if not fields.get("Cmd"):
        raise Rejected(400, "its body is refused: it contains no command")
    for name in ("Privileged", "Detach", "Container"):  # false, or repeats the path
        fields.pop(name, None)
    return _encode(fields)


def start_body(body: bytes) -> tuple[bytes, bool]:
    """Rebuild the body of a request that starts a command; return it, and whether the command is detached.

    Raises:
        Rejected: It contains an unknown field.
    """
    fields = _parse(body or b"{}", _START_FIELDS)
    return _encode(fields), bool(fields.get("Detach"))


def logged_command(body: bytes) -> tuple[list[str], str | None]:
    """Return the command in the result of `exec_body`, shortened for the log, and its user."""
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
    """Restrict the `filters` parameter of a list request to the granted label.

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
        # Go also folds two letters outside of ASCII to ASCII ones; here, fields with such letters are unknown.
        lower = key.lower()
        if not key.isascii() or lower not in known:
            raise Rejected(400, f"its body is refused: the field {key[:50]!r} is not known")
        name, kind = known[lower]
        if name in found:
            raise Rejected(400, f"its body is refused: the field {name} occurs twice")
        if value is not None and not _has_type(name, value, kind):
            raise Rejected(400, f"its body is refused: {name} is not a {kind.__name__}")
        if value is not None:
            found[name] = value
    return found


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which neither the record nor the engine can store
        raise Rejected(400, "its body is refused: a text in it is not valid Unicode") from None


def _has_type(name: str, value: Any, kind: type) -> bool:
    if kind is not list or not isinstance(value, list):
        return isinstance(value, kind)
    element: type = int if name == "ConsoleSize" else str
    return all(isinstance(item, element) and not isinstance(item, bool) for item in value)


# --- responses


def is_visible(resource: Mapping[str, Any], access: EngineAccess) -> bool:
    """Whether a container or image may be seen: it has the granted label, and is not a sandbox of ringfence."""
    labels = _labels_of(resource)
    return access.is_on(labels) and not OWN_LABELS & labels.keys()


def visible_only(resources: Any, access: EngineAccess) -> list[Any]:
    """Return the visible ones of a list of containers or images."""
    if not isinstance(resources, list):
        return []
    return [resource for resource in resources if isinstance(resource, dict) and is_visible(resource, access)]


def short_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the harmless fields of `info`."""
    return {key: info[key] for key in _INFO_FIELDS if key in info}


def without_secrets(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return an inspected container without environment values and log settings, which may hold passwords."""
    config = dict(container.get("Config") or {})
    names = [str(entry).partition("=")[0] for entry in config.get("Env") or []]
    config["Env"] = [f"{name}={_HIDDEN}" for name in names]
    host = dict(container.get("HostConfig") or {})
    host.pop("LogConfig", None)
    return {**container, "Config": config, "HostConfig": host}


def _labels_of(resource: Mapping[str, Any]) -> dict[str, str]:
    config = resource.get("Config")
    found = resource.get("Labels") if "Labels" in resource else (config or {}).get("Labels")
    return {str(key): str(value) for key, value in (found or {}).items()}
