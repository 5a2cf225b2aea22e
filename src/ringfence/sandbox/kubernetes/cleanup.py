"""Removes pods that dead processes left on clusters, found by labels: only those of this installation."""

from contextlib import suppress
from typing import Any

from ringfence.errors import RingfenceError
from ringfence.sandbox.container.labels import INSTANCE, SANDBOX, instance_id, is_over
from ringfence.sandbox.container.used_places import remember_place, used_places
from ringfence.sandbox.kubernetes.cluster import Cluster, open_cluster
from ringfence.sandbox.kubernetes.manifest import MANAGED_BY, pod_name
from ringfence.sandbox.kubernetes.pod import delete_pod

_FOLDER = ("kubernetes", "clusters")
_cleaned: set[tuple[str, str]] = set()


def remember(context: str | None, namespace: str | None) -> None:
    """Record that a cluster is about to hold something of ours, so that a later process cleans up there.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    remember_place(_FOLDER, {"context": context, "namespace": namespace})


async def clean_up_once(cluster: Cluster) -> None:
    """On this process's first use of a namespace, remove what earlier processes left there."""
    key = (cluster.server, cluster.namespace)
    if key not in _cleaned:
        _cleaned.add(key)
        with suppress(RingfenceError):  # a later start removes what cannot be removed now
            await clean_up_cluster(cluster, frozenset())


async def remove_leftovers(sandbox_ids: frozenset[str], *, dry_run: bool = False) -> list[str]:
    """Remove leftovers of these sandboxes, and of all that are over, from every cluster used so far.

    A cluster that does not respond now is skipped until the next call.
    """
    names: list[str] = []
    for place in used_places(_FOLDER):
        with suppress(RingfenceError):
            async with await open_cluster(place.get("context"), place.get("namespace")) as cluster:
                names += await clean_up_cluster(cluster, sandbox_ids, dry_run=dry_run)
    return names


async def clean_up_cluster(
    cluster: Cluster, sandbox_ids: frozenset[str], *, dry_run: bool = False
) -> list[str]:
    """Delete this ringfence's pods of these sandboxes, and abandoned ones; return their names."""
    selector = ",".join(f"{key}={value}" for key, value in {**MANAGED_BY, INSTANCE: instance_id()}.items())
    found = await cluster.call("list pods", "GET", cluster.path("pods"), params={"labelSelector": selector})
    names = []
    for pod in found.get("items") or ():
        metadata: dict[str, Any] = pod["metadata"]
        marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
        name, sandbox_id = str(metadata["name"]), str(marks.get(SANDBOX))
        if "deletionTimestamp" in metadata:
            continue  # its node is ending it
        is_to_go = name == pod_name(sandbox_id) and (sandbox_id in sandbox_ids or is_over(marks))
        if is_to_go and (dry_run or await delete_pod(cluster, name, str(metadata["uid"]))):
            names.append(f"pod {name}")
    return names
