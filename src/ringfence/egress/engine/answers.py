"""What of the engine's answers is passed on: pure functions over parsed JSON. What they do not know is left out."""

import json
from collections.abc import Mapping
from typing import Any

from ringfence.config.engine_access import EngineAccess

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
"""Of the engine's `info`: nothing of names, registries, proxies (with their passwords), plugins or swarms."""
OWN = frozenset({"ringfence.instance", "ringfence.sandbox"})
"""Labels of ringfence's own containers; those of its images are on everybody's."""
_FILTERS = frozenset(
    {"ancestor", "dangling", "exited", "health", "id", "label", "name", "reference", "status"}
)
"""Not `before` and `since`: an engine says by them whether a container is there that is not to be seen."""
_HIDDEN = "(hidden by ringfence)"


def labels_of(container: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an inspected or listed container or image."""
    config = container.get("Config")
    found = container.get("Labels") if "Labels" in container else (config or {}).get("Labels")
    return {str(key): str(value) for key, value in (found or {}).items()}


def is_visible(thing: Mapping[str, Any], access: EngineAccess) -> bool:
    """Whether those inside may see it: it has the label, and is none of ringfence's own sandboxes."""
    labels = labels_of(thing)
    return access.is_on(labels) and not OWN & labels.keys()


def visible_only(things: Any, access: EngineAccess) -> list[Any]:
    """A list of containers or images without those that are not to be seen."""
    return [thing for thing in things if isinstance(thing, dict) and is_visible(thing, access)]


def with_label(filters: str, access: EngineAccess) -> str:
    """The `filters` parameter of a list, narrowed to the label.

    Raises:
        ValueError: It is not what an engine takes, or asks about others.
    """
    wanted = json.loads(filters) if filters else {}
    if not isinstance(wanted, dict):
        raise ValueError("filters are a mapping")
    narrowed: dict[str, list[str]] = {}
    for key, values in wanted.items():
        if key not in _FILTERS:
            raise ValueError(f"filter {key[:50]!r} is not known")
        if not isinstance(values, dict | list) or not all(isinstance(value, str) for value in values):
            raise ValueError(f"filter {key[:50]!r} is no list of texts")
        narrowed[key] = list(values)
    narrowed["label"] = [*narrowed.get("label", []), access.label]
    return json.dumps(narrowed)


def short_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """What of `info` is nobody's secret."""
    return {key: info[key] for key in _INFO if key in info}


def without_secrets(container: Mapping[str, Any]) -> dict[str, Any]:
    """An inspected container without the values of its environment and where its logs go: passwords are there."""
    config = dict(container.get("Config") or {})
    names = [str(entry).partition("=")[0] for entry in config.get("Env") or []]
    config["Env"] = [f"{name}={_HIDDEN}" for name in names]
    host = dict(container.get("HostConfig") or {})
    host.pop("LogConfig", None)
    return {**container, "Config": config, "HostConfig": host}
