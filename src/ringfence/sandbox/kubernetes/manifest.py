"""Translates a hardened container into a pod, and checks the pod that the cluster made.

Fields are those of the Kubernetes API, group core, version v1. `GUEST` is the container of the agent; `FILES` mounts
the same workspace, if there is one, and runs only ringfence's own programs (`inside`).
"""

import os
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from ringfence.config.kubernetes import KubernetesPods
from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Launch
from ringfence.sandbox.container.hardened_container import ContainerMount, HardenedContainer
from ringfence.sandbox.container.labels import EXPIRES, HOLDER, container_name, lifetime_s
from ringfence.sandbox.kubernetes.inside import program
from ringfence.sandbox.tar.stream import TOP

GUEST, FILES = "sandbox", "files"
INTERPRETER = ("python3", "-I", "-S", "-c")
CARRIED = "/carried"
"""Directory of the container `FILES` in which the workspace is mounted, as `tar.TOP`."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "ringfence"}
POLICY_NAME = "ringfence-sandboxes"
_WORKSPACE_VOLUME = "workspace"
_ARCHITECTURE = {"kubernetes.io/arch": "amd64"}  # that of the guest's system call filter
_LARGEST_UPLOAD = 16 * 1024**3
_ANNOTATIONS = (HOLDER, EXPIRES)  # their values may have characters that a label's may not
_LOOPBACK = "127.0.0.1"
_GRACE_S = 1
_RESERVED = {"cpu": "50m", "memory": "64Mi"}
_FILES_LIMITS = {"cpu": "1", "memory": "256Mi"}
_POD_OFF = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "enableServiceLinks")
_TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io"  # noqa: S105 -- a path


def pod_name(sandbox_id: str) -> str:
    """The name of a sandbox's pod."""
    return container_name(sandbox_id).lower().replace("_", "-")


def make_pod(asked: HardenedContainer, launch: Launch, settings: KubernetesPods) -> dict[str, Any]:
    """The pod of a launch.

    Raises:
        PolicyRefused: A directory of this machine would have to be mounted.
    """
    if launch.spec.mounts:
        raise PolicyRefused(
            f"sandbox.mounts: {str(launch.spec.mounts[0].source)!r} cannot be mounted in a pod, which sees no files of "
            "this machine; put it into the image, or into a volume (sandbox.kubernetes.claims)",
            rule="mount-unseen",
        )
    if launch.placement.upload == "none" and launch.placement.workspace_source is not None:
        raise PolicyRefused(
            "a pod sees no files of this machine, so the workspace has to be uploaded: use mode 'clone' or 'read_only'",
            rule="mount-unseen",
        )
    labels = {key: value for key, value in asked.labels.items() if key not in _ANNOTATIONS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(launch.sandbox_id),
            "labels": {**labels, **MANAGED_BY},
            "annotations": {key: asked.labels[key] for key in _ANNOTATIONS},
            "ownerReferences": list(_owners(settings.namespace)),
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            **dict.fromkeys(_POD_OFF, False),
            "hostname": asked.hostname,
            "hostAliases": list(_host_aliases(launch.spec.host_names())),
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": [_LOOPBACK]},  # one is required; none listens there
            "activeDeadlineSeconds": int(lifetime_s(launch.spec.ttl_s)),
            "terminationGracePeriodSeconds": _GRACE_S,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": asked.uid,
                "runAsGroup": asked.gid,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "nodeSelector": {**settings.node_selector, **_ARCHITECTURE},
            "tolerations": [each.model_dump(exclude_none=True) for each in settings.tolerations],
            "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
            **({} if asked.runtime is None else {"runtimeClassName": asked.runtime}),
            "volumes": list(_volumes(asked, settings, int(launch.spec.disk))),
            "containers": [_guest(asked, settings), _files(asked)],
        },
    }


def _owners(namespace: str | None) -> Iterator[dict[str, Any]]:
    """Yield the pod that this process runs in, if any: when it is gone, the cluster removes the pods that it owns.

    It owns pods of its own namespace only: the cluster takes an owner in another one for gone, and would remove the new
    pod at once.
    """
    name, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
    if name and uid and namespace in (None, os.environ.get("POD_NAMESPACE")):
        yield {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "blockOwnerDeletion": False}


def _host_aliases(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if names:
        yield {"ip": _LOOPBACK, "hostnames": list(names)}


def _guest(asked: HardenedContainer, settings: KubernetesPods) -> dict[str, Any]:
    limits = {"memory": str(asked.limits.memory), "cpu": f"{asked.limits.cpus:.3f}"}
    # Variables of the image cannot be removed. Those that decide which programs and libraries run first are set.
    environment = {"LD_LIBRARY_PATH": "", "LD_PRELOAD": "", "LD_AUDIT": "", **asked.first_environment}
    return {
        "name": GUEST,
        **_secured(asked),
        "command": list(asked.argv),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "stdin": True,
        "stdinOnce": True,
        "resources": {"limits": limits, "requests": limits if settings.reserve else _RESERVED},
        "volumeMounts": [
            *(
                {"name": f"memory-{number}", "mountPath": one.target}
                for number, one in enumerate(asked.memory)
            ),
            *(
                {"name": _volume_name(number, one), "mountPath": one.target, "readOnly": one.read_only}
                for number, one in enumerate(asked.mounts)
            ),
            *(
                {"name": f"claim-{number}", "mountPath": one.target, "readOnly": True}
                for number, one in enumerate(settings.claims)
            ),
        ],
    }


def _volume_name(number: int, mount: ContainerMount) -> str:
    return f"empty-{number}" if mount.source is None else _WORKSPACE_VOLUME


def _files(asked: HardenedContainer) -> dict[str, Any]:
    mounts = [
        {"name": _WORKSPACE_VOLUME, "mountPath": f"{CARRIED}/{TOP}"}
        for mount in asked.mounts
        if mount.source is not None
    ]
    return {
        "name": FILES,
        **_secured(asked),
        "command": [*INTERPRETER, program("receive"), CARRIED],
        "env": [{"name": "LD_PRELOAD", "value": ""}],
        **({"stdin": True, "stdinOnce": True} if mounts else {}),
        "resources": {"limits": _FILES_LIMITS, "requests": _RESERVED},
        "volumeMounts": mounts,
    }


def _secured(asked: HardenedContainer) -> dict[str, Any]:
    return {
        "image": asked.image.reference,
        "imagePullPolicy": "IfNotPresent",
        "workingDir": "/",
        "securityContext": {
            "allowPrivilegeEscalation": not asked.no_new_privileges,
            "privileged": False,
            "readOnlyRootFilesystem": asked.read_only_root,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _volumes(asked: HardenedContainer, settings: KubernetesPods, disk_bytes: int) -> Iterator[dict[str, Any]]:
    for number, memory in enumerate(asked.memory):
        size = {"medium": "Memory", "sizeLimit": str(memory.size_bytes)}
        yield {"name": f"memory-{number}", "emptyDir": size}
    for number, mount in enumerate(asked.mounts):
        size = {"medium": "Memory", "sizeLimit": "1Mi"}
        if mount.source is not None:
            # Beyond it the node evicts the pod; the watchdog of the guest ends it before.
            size = {"sizeLimit": str(disk_bytes + _LARGEST_UPLOAD)}
        yield {"name": _volume_name(number, mount), "emptyDir": size}
    for number, claim in enumerate(settings.claims):
        yield {
            "name": f"claim-{number}",
            "persistentVolumeClaim": {"claimName": claim.name, "readOnly": True},
        }


def make_policy() -> dict[str, Any]:
    """The NetworkPolicy of a namespace: no connection to or from any sandbox in it."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY_NAME, "labels": MANAGED_BY},
        "spec": {"podSelector": {"matchLabels": MANAGED_BY}, "policyTypes": ["Ingress", "Egress"]},
    }


def policy_fault(found: Mapping[str, Any]) -> str | None:
    """What a policy of that name allows or leaves out; None if it denies everything."""
    spec = found.get("spec") or {}
    if spec.get("podSelector") != {"matchLabels": MANAGED_BY}:
        return "it selects other pods"
    if set(spec.get("policyTypes") or ()) != {"Ingress", "Egress"}:
        return f"it is for {spec.get('policyTypes')!r} only"
    if spec.get("ingress") or spec.get("egress"):
        return "it allows connections"
    return None


# --- reading back: an admission controller may change a pod

_POD_SAME = (
    "restartPolicy",
    "dnsPolicy",
    "dnsConfig",
    "hostAliases",
    "runtimeClassName",
    "automountServiceAccountToken",
    "activeDeadlineSeconds",
    "resourceClaims",
)
_CONTAINER_SAME = (
    "image",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "stdin",
    "stdinOnce",
    "tty",
    "ports",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "volumeDevices",
    "restartPolicy",
    "restartPolicyRules",
)
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
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def mismatches(asked: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """Yield each way in which the pod that the cluster made differs from the one asked for, and may be less safe."""
    for kind in ("labels", "annotations"):
        found = made["metadata"].get(kind) or {}
        for key, value in asked["metadata"][kind].items():
            if found.get(key) != value:
                yield f"{kind[:-1]} {key!r} is {found.get(key)!r}, not {value!r}"
    for key, value in sorted((made["metadata"].get("annotations") or {}).items()):
        if _LOOSENING_ANNOTATIONS.fullmatch(key) and value != "runtime/default":
            yield f"annotation {key!r} is {value!r}, which was not asked for"
    wanted, got = asked["spec"], made["spec"]
    yield from _wrong_pod(wanted, got)
    yield from _wrong_volumes(wanted, got)
    containers = {one["name"]: one for one in got.get("containers") or ()}
    for one in wanted["containers"]:
        if one["name"] in containers:
            yield from _wrong_container(one, containers[one["name"]])


def _wrong_pod(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    for key in _POD_OFF:
        if got.get(key, False):
            yield f"{key} is on"
    for key in _POD_SAME:
        if _stored(got.get(key)) != _stored(wanted.get(key)):
            yield f"{key} is {got.get(key)!r}, not {wanted.get(key)!r}"
    yield from _differences("securityContext", wanted["securityContext"], got.get("securityContext") or {})
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        names = [one["name"] for one in wanted.get(kind) or ()]
        found = [one["name"] for one in got.get(kind) or ()]
        if sorted(names) != sorted(found):
            yield f"{kind} are {found!r}, not {names!r}"


def _wrong_volumes(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    volumes = {one["name"]: one for one in wanted["volumes"]}
    found = {one["name"]: one for one in got.get("volumes") or ()}
    for name in sorted(found.keys() - volumes.keys()):
        yield f"volume {name!r} was added"
    for name, volume in volumes.items():
        if name not in found or _sized(found[name]) != _sized(volume):
            yield f"volume {name!r} was changed"


def _wrong_container(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    name = wanted["name"]
    for key in _CONTAINER_SAME:
        if _stored(got.get(key)) != _stored(wanted.get(key)):
            yield f"{key} of container {name!r} was changed"
    limits = {key: _quantity(value) for key, value in wanted["resources"]["limits"].items()}
    found = (got.get("resources") or {}).get("limits") or {}
    if {key: _quantity(value) for key, value in found.items()} != limits:
        yield f"the limits of container {name!r} were changed"
    yield from _differences(
        f"securityContext of container {name!r}", wanted["securityContext"], got.get("securityContext") or {}
    )
    yield from _wrong_mounts(wanted, got)


def _wrong_mounts(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
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


def _stored(value: Any) -> Any:
    """A value as the API stores it: empty ones are left out."""
    if isinstance(value, Mapping):
        value = {key: inner for key, one in value.items() if (inner := _stored(one)) not in _EMPTY}
    elif isinstance(value, list):
        value = [_stored(one) for one in value]
    return None if value in _EMPTY else value


def _sized(volume: Mapping[str, Any]) -> Mapping[str, Any]:
    """A volume whose size can be compared."""
    empty = volume.get("emptyDir")
    if empty is None:
        return volume
    return {**volume, "emptyDir": {**empty, "sizeLimit": _quantity(empty.get("sizeLimit", "0"))}}


def _quantity(text: Any) -> Decimal:
    """A quantity of the API, which a server may write in another form; no number if it is none."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return Decimal("NaN")
    number, exponent, suffix = match.groups()
    try:
        if exponent is None and suffix is not None and suffix.endswith("i"):
            return Decimal(number) * Decimal(1024) ** ("KMGTPE".index(suffix[0]) + 1)
        return Decimal(number + (exponent or f"e{_SUFFIXES[suffix] if suffix else 0}"))
    except InvalidOperation:
        return Decimal("NaN")


def _differences(what: str, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    """Values that differ, and those that were added: a uid, groups, capabilities, sysctls."""
    for key, value in wanted.items():
        if got.get(key) != value:
            yield f"{key} in {what} is {got.get(key)!r}, not {value!r}"
    for key in sorted(got.keys() - wanted.keys()):
        if got[key] not in _EMPTY and (key, got[key]) not in _HARMLESS:
            yield f"{key} in {what} is {got[key]!r}, which was not asked for"
