"""What the engine made, held against what was asked: an engine that drops a limit in silence is found out. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

_SAME = (
    "ReadonlyRootfs",
    "Memory",
    "MemorySwap",
    "NanoCpus",
    "PidsLimit",
    "CpusetCpus",
    "Privileged",
    "NetworkMode",
    "Runtime",
    "Init",
)


def mismatches(asked: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    """What differs between a create request and `GET /containers/{id}/json`, in words; empty if nothing does."""
    return list(_mismatches(asked, made))


def _mismatches(asked: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    wanted, got = asked["HostConfig"], made.get("HostConfig") or {}
    for key in _SAME:
        if key in wanted and not _is_same(key, wanted[key], got):
            yield f"{key} is {got.get(key)!r}, not {wanted[key]!r}"
    configuration = made.get("Config") or {}
    if configuration.get("User") != asked["User"]:
        yield f"User is {configuration.get('User')!r}, not {asked['User']!r}"
    yield from _capabilities(got)
    yield from _options(wanted, got)
    yield from _namespaces(got)
    yield from _mounts(wanted, made)


def _is_same(key: str, wanted: Any, got: Mapping[str, Any]) -> bool:
    found = got.get(key)
    if key == "NanoCpus" and not found and got.get("CpuPeriod"):
        # Podman keeps the same as quota and period.
        return bool(round(got.get("CpuQuota", 0) / got["CpuPeriod"] * 1e9) == wanted)
    if key in ("Init", "Privileged"):
        return bool(found) == bool(wanted)
    return bool(found == wanted)


def _capabilities(got: Mapping[str, Any]) -> Iterator[str]:
    if got.get("CapAdd"):
        yield f"capabilities {got['CapAdd']!r} were added"
    dropped = {str(one).upper().removeprefix("CAP_") for one in got.get("CapDrop") or ()}
    # Podman writes out the ones it would have given.
    if "ALL" not in dropped and not dropped >= {"CHOWN", "SETUID", "SETGID", "NET_BIND_SERVICE", "KILL"}:
        yield f"capabilities dropped are {sorted(dropped)!r}, not all"


def _options(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    found = [str(one) for one in got.get("SecurityOpt") or ()]
    if not any(one.startswith("no-new-privileges") and not one.endswith("false") for one in found):
        yield "no-new-privileges is not set"
    if "seccomp=unconfined" in found:
        yield "the engine's own system call filter is off"
    if "apparmor=docker-default" in wanted["SecurityOpt"] and "apparmor=docker-default" not in found:
        yield "the AppArmor profile is not set"


def _namespaces(got: Mapping[str, Any]) -> Iterator[str]:
    for key in ("PidMode", "IpcMode", "UTSMode", "CgroupnsMode", "UsernsMode"):
        if got.get(key) == "host":
            yield f"{key} is the host's"
    if got.get("Devices"):
        yield f"devices {got['Devices']!r} were added"


def _mounts(wanted: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    found = {str(one.get("Destination")): one for one in made.get("Mounts") or ()}
    asked = {str(one["Target"]): one for one in wanted["Mounts"]}
    for target, one in asked.items():
        if target not in found:
            yield f"nothing is mounted on {target!r}"
        elif bool(found[target].get("RW")) == bool(one["ReadOnly"]):
            yield f"the mount on {target!r} is {'writable' if one['ReadOnly'] else 'read-only'}"
    for target, other in found.items():
        if target not in asked and target not in wanted["Tmpfs"] and other.get("Type") != "tmpfs":
            yield f"{other.get('Source')!r} is mounted on {target!r}, which was not asked for"
