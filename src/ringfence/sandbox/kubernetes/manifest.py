"""Translates a hardened container into a pod.

Fields are those of the Kubernetes API, group core, version v1. `GUEST` is the container of the agent; `FILES` mounts
the same workspace, if there is one, has the same network, and runs only ringfence's own programs (`inside`).
"""

import os
from collections.abc import Iterator
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
_WORKSPACE_VOLUME = "workspace"
_ARCHITECTURE = {"kubernetes.io/arch": "amd64"}  # that of the guest's system call filter
_LARGEST_UPLOAD = 16 * 1024**3
_ANNOTATIONS = (HOLDER, EXPIRES)  # their values may have characters that a label's may not
_LOOPBACK = "127.0.0.1"
_GRACE_S = 1
_RESERVED = {"cpu": "50m", "memory": "64Mi"}
_FILES_LIMITS = {"cpu": "1", "memory": "256Mi"}
POD_OFF = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "enableServiceLinks")


def pod_name(sandbox_id: str) -> str:
    """The name of a sandbox's pod."""
    return container_name(sandbox_id).lower().replace("_", "-")


def make_pod(container: HardenedContainer, launch: Launch, settings: KubernetesPods) -> dict[str, Any]:
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
    names = launch.spec.host_names()
    labels = {key: value for key, value in container.labels.items() if key not in _ANNOTATIONS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(launch.sandbox_id),
            "labels": {**labels, **MANAGED_BY},
            "annotations": {key: container.labels[key] for key in _ANNOTATIONS},
            "ownerReferences": list(_owners(settings.namespace)),
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            **dict.fromkeys(POD_OFF, False),
            "hostname": container.hostname,
            "hostAliases": [{"ip": _LOOPBACK, "hostnames": list(names)}] if names else [],
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": [_LOOPBACK]},  # one is required; none listens there
            "activeDeadlineSeconds": int(lifetime_s(launch.spec.ttl_s)),
            "terminationGracePeriodSeconds": _GRACE_S,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": container.uid,
                "runAsGroup": container.gid,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "nodeSelector": {**settings.node_selector, **_ARCHITECTURE},
            "tolerations": [each.model_dump(exclude_none=True) for each in settings.tolerations],
            "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
            **({} if container.runtime is None else {"runtimeClassName": container.runtime}),
            "volumes": list(_volumes(container, settings, int(launch.spec.disk))),
            # A node starts them in this order.
            "containers": [_files_container(container), _guest_container(container, settings)],
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


def _guest_container(container: HardenedContainer, settings: KubernetesPods) -> dict[str, Any]:
    limits = {"memory": str(container.limits.memory), "cpu": f"{container.limits.cpus:.3f}"}
    # Variables of the image cannot be removed. Those that decide which programs and libraries run first are set.
    environment = {"LD_LIBRARY_PATH": "", "LD_PRELOAD": "", "LD_AUDIT": "", **container.first_environment}
    return {
        "name": GUEST,
        **_common_fields(container),
        "command": list(container.argv),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "stdin": True,
        "stdinOnce": True,
        "resources": {"limits": limits, "requests": limits if settings.reserve else _RESERVED},
        "volumeMounts": [
            *(
                {"name": f"memory-{number}", "mountPath": one.target}
                for number, one in enumerate(container.memory)
            ),
            *(
                {"name": _volume_name(number, one), "mountPath": one.target, "readOnly": one.read_only}
                for number, one in enumerate(container.mounts)
            ),
            *(
                {"name": f"claim-{number}", "mountPath": one.target, "readOnly": True}
                for number, one in enumerate(settings.claims)
            ),
        ],
    }


def _volume_name(number: int, mount: ContainerMount) -> str:
    return f"empty-{number}" if mount.source is None else _WORKSPACE_VOLUME


def _files_container(container: HardenedContainer) -> dict[str, Any]:
    mounts = [
        {"name": _WORKSPACE_VOLUME, "mountPath": f"{CARRIED}/{TOP}"}
        for mount in container.mounts
        if mount.source is not None
    ]
    return {
        "name": FILES,
        **_common_fields(container),
        "command": [*INTERPRETER, program("files"), CARRIED],
        "env": [{"name": "LD_PRELOAD", "value": ""}],
        "stdin": True,
        "stdinOnce": True,
        "resources": {"limits": _FILES_LIMITS, "requests": _RESERVED},
        "volumeMounts": mounts,
    }


def _common_fields(container: HardenedContainer) -> dict[str, Any]:
    return {
        "image": container.image.reference,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "workingDir": "/",
        "securityContext": {
            "allowPrivilegeEscalation": not container.no_new_privileges,
            "privileged": False,
            "readOnlyRootFilesystem": container.read_only_root,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _volumes(
    container: HardenedContainer, settings: KubernetesPods, disk_bytes: int
) -> Iterator[dict[str, Any]]:
    for number, memory in enumerate(container.memory):
        size = {"medium": "Memory", "sizeLimit": str(memory.size_bytes)}
        yield {"name": f"memory-{number}", "emptyDir": size}
    for number, mount in enumerate(container.mounts):
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
