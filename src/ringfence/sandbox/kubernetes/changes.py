"""Compares a pod with the one that was asked for: admission controllers, and other users, may change a pod."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity

from ringfence.sandbox.kubernetes.manifest import POD_OFF

_POD_COMPARED_APART = frozenset(
    {*POD_OFF, "securityContext", "volumes", "containers", "initContainers", "ephemeralContainers"}
)
_POD_CHANGEABLE = frozenset(
    {
        "affinity",
        "hostUsers",
        "imagePullSecrets",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "schedulerName",
        "schedulingGates",
        "serviceAccount",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""Fields of a pod that a cluster completes, or others may set: where it runs and with which priority."""
_CONTAINER_COMPARED_APART = frozenset({"name", "resources", "securityContext", "volumeMounts"})
_CONTAINER_CHANGEABLE = frozenset({"imagePullPolicy", "resizePolicy"})
_LOOSENING_ANNOTATIONS = re.compile(
    r"container\.apparmor\.security\.beta\.kubernetes\.io/.*"  # before 1.30 the only way to turn AppArmor off
    r"|k8s\.v1\.cni\.cncf\.io/networks|v1\.multus-cni\.io/default-network"  # more networks, without policies
    r"|io\.kubernetes\.cri-o\..*|.*\.crio\.io(/.*)?|.*\.kubernetes\.cri-o\.io(/.*)?"  # devices, system calls
    r"|cdi\.k8s\.io/.*|dev\.gvisor\..*|io\.katacontainers\..*"  # devices, and settings of the runtime
)
"""Annotations by which a node's runtime or network plugin weakens a container."""
_HARMLESS: tuple[tuple[str, Any], ...] = (
    ("procMount", "Default"),  # servers since 1.33 fill it in
    ("fsGroupChangePolicy", "Always"),
    ("fsGroupChangePolicy", "OnRootMismatch"),
    ("appArmorProfile", {"type": "RuntimeDefault"}),
)
"""Values of a security context that may be added."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io"  # noqa: S105 -- a path


def changes_of(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    """Yield each way in which the pod that the cluster made differs from the one asked for, and may be less safe."""
    for kind in ("labels", "annotations"):
        found = got["metadata"].get(kind) or {}
        for key, value in wanted["metadata"][kind].items():
            if found.get(key) != value:
                yield f"{kind[:-1]} {key!r} is {found.get(key)!r}, not {value!r}"
    for key, value in sorted((got["metadata"].get("annotations") or {}).items()):
        if _LOOSENING_ANNOTATIONS.fullmatch(key) and value != "runtime/default":
            yield f"annotation {key!r} is {value!r}, which was not asked for"
    yield from _pod_changes(wanted["spec"], got["spec"])
    yield from _volume_changes(wanted["spec"], got["spec"])
    containers = {one["name"]: one for one in got["spec"].get("containers") or ()}
    for one in wanted["spec"]["containers"]:
        if one["name"] in containers:
            yield from _container_changes(one, containers[one["name"]])


def _pod_changes(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    for key in POD_OFF:
        if got.get(key, False):
            yield f"{key} is on"
    for key in sorted((wanted.keys() | got.keys()) - _POD_COMPARED_APART - _POD_CHANGEABLE):
        if _without_empty(got.get(key)) != _without_empty(wanted.get(key)):
            yield f"{key} is {got.get(key)!r}, not {wanted.get(key)!r}"
    yield from _security_context_changes(
        "securityContext", wanted["securityContext"], got.get("securityContext") or {}
    )
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        names = [one["name"] for one in wanted.get(kind) or ()]
        found = [one["name"] for one in got.get(kind) or ()]
        if sorted(names) != sorted(found):
            yield f"{kind} are {found!r}, not {names!r}"


def _volume_changes(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    volumes = {one["name"]: one for one in wanted["volumes"]}
    found = {one["name"]: one for one in got.get("volumes") or ()}
    for name in sorted(found.keys() - volumes.keys()):
        yield f"volume {name!r} was added"
    for name, volume in volumes.items():
        if name not in found or _comparable(found[name]) != _comparable(volume):
            yield f"volume {name!r} was changed"


def _container_changes(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    name = wanted["name"]
    for key in sorted((wanted.keys() | got.keys()) - _CONTAINER_COMPARED_APART - _CONTAINER_CHANGEABLE):
        if _without_empty(got.get(key)) != _without_empty(wanted.get(key)):
            yield f"{key} of container {name!r} was changed"
    limits = {key: _quantity(value) for key, value in wanted["resources"]["limits"].items()}
    found = (got.get("resources") or {}).get("limits") or {}
    if {key: _quantity(value) for key, value in found.items()} != limits:
        yield f"the limits of container {name!r} were changed"
    yield from _security_context_changes(
        f"securityContext of container {name!r}", wanted["securityContext"], got.get("securityContext") or {}
    )
    yield from _mount_changes(wanted, got)


def _mount_changes(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    mounts = {one["mountPath"]: one for one in wanted["volumeMounts"]}
    found = {one["mountPath"]: one for one in got.get("volumeMounts") or ()}
    for path in sorted(found.keys() - mounts.keys()):
        token = ", the token of a service account" if path.startswith(_TOKEN_DIRECTORY) else ""
        yield f"{found[path]['name']!r} is mounted on {path!r}{token}, which was not asked for"
    for path, mount in mounts.items():
        made = found.get(path, {"name": None})
        if made["name"] != mount["name"]:
            yield f"{mount['name']!r} is not mounted on {path!r}"
        elif bool(mount.get("readOnly")) != bool(made.get("readOnly")):
            yield f"the mount on {path!r} is {'read-only' if made.get('readOnly') else 'writable'}"
        elif made.get("subPath") or made.get("subPathExpr") or made.get("mountPropagation", "None") != "None":
            yield f"the mount on {path!r} was changed"


def _without_empty(value: Any) -> Any:
    """A value as the API stores it: empty ones are left out."""
    if isinstance(value, Mapping):
        value = {key: inner for key, one in value.items() if (inner := _without_empty(one)) not in _EMPTY}
    elif isinstance(value, list):
        value = [_without_empty(one) for one in value]
    return None if value in _EMPTY else value


def _comparable(volume: Mapping[str, Any]) -> Mapping[str, Any]:
    """A volume whose size can be compared."""
    empty = volume.get("emptyDir")
    if empty is None:
        return volume
    return {**volume, "emptyDir": {**empty, "sizeLimit": _quantity(empty.get("sizeLimit", "0"))}}


def _quantity(text: Any) -> Decimal | None:
    """A quantity of the API, which a server may write in another form; NaN, which equals nothing, if it is none."""
    try:
        return parse_quantity(str(text))
    except ValueError:
        return Decimal("NaN")


def _security_context_changes(what: str, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    """Values that differ, and those that were added: a uid, groups, capabilities, sysctls."""
    for key, value in wanted.items():
        if got.get(key) != value:
            yield f"{key} in {what} is {got.get(key)!r}, not {value!r}"
    for key in sorted(got.keys() - wanted.keys()):
        if got[key] not in _EMPTY and (key, got[key]) not in _HARMLESS:
            yield f"{key} in {what} is {got[key]!r}, which was not asked for"
