"""A sandbox's pod, from its creation to its removal."""

import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast

import anyio

from ringfence.background_tasks import run_both
from ringfence.config.kubernetes import UNENFORCED
from ringfence.errors import RingfenceError, SandboxStartFailed
from ringfence.sandbox.kubernetes.changes import changes_of
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError, shown
from ringfence.sandbox.kubernetes.failure import container_status, is_running, start_problem
from ringfence.sandbox.kubernetes.files_container import FilesContainer
from ringfence.sandbox.kubernetes.isolation import Inspection, begin_inspection, end_inspection
from ringfence.sandbox.kubernetes.manifest import FILES, GUEST
from ringfence.sandbox.kubernetes.pod_stream import PodStream
from ringfence.sandbox.kubernetes.policy import ensure_policy, find_openings, list_policies
from ringfence.sandbox.spec import SandboxSpec

_REMOVE_S = 20.0
_EAGER_S, _FIRST_PAUSE_S, _SLOWER = 3.0, 0.05, 1.15
"""How long attaching is tried before the node has reported the container, and how often."""


class SandboxPod:
    """A pod whose container `FILES` runs, and with it a session with the cluster. Made by `create`.

    Attributes:
        cluster: The session.
        name: The pod's name.
        files: The container `FILES`.
        inspection: What was found in it; None before `inspect`.
        start_s: How long its start took.
    """

    def __init__(
        self,
        cluster: Cluster,
        manifest: Mapping[str, Any],
        spec: SandboxSpec,
        scheduled: Mapping[str, Any],
        files: FilesContainer,
    ) -> None:
        self.cluster = cluster
        self.name = _name(manifest)
        self.files = files
        self.inspection: Inspection | None = None
        self.start_s = 0.0
        self._manifest = manifest
        self._spec = spec
        self._uid = str(scheduled["metadata"]["uid"])
        self._node = _node(scheduled)

    @classmethod
    async def create(cls, cluster: Cluster, manifest: Mapping[str, Any], spec: SandboxSpec) -> "SandboxPod":
        """Make a pod, and begin to look from inside whether its network is closed.

        Args:
            cluster: The session, which the pod owns from here on.
            manifest: The pod (`manifest.make_pod`).
            spec: The sandbox's.

        Raises:
            SandboxStartFailed: It does not start in time, or the cluster made another one; nothing is left.
            ClusterError, AuthenticationFailed: The cluster refuses, or cannot be reached.
        """
        began, name, timeout_s = time.monotonic(), _name(manifest), spec.kubernetes.start_timeout
        made = await send_pod(cluster, manifest, spec)
        try:
            stream = await _attach("attach to the pod for its files", cluster, name, FILES, timeout_s)
            scheduled = await await_pod(cluster, name, lambda pod: bool(_node(pod)), timeout_s)
            pod = cls(cluster, manifest, spec, scheduled, FilesContainer(stream))
            await begin_inspection(pod.files, pod._node)
            pod.start_s = time.monotonic() - began
        except BaseException:
            await _give_up(cluster, name, str(made["metadata"]["uid"]))
            raise
        return pod

    async def inspect(self) -> Inspection:
        """Look from inside; refuse the pod if its network is not closed, unless the user has accepted that.

        Raises:
            SandboxStartFailed: It is not closed, or that could not be found out.
        """
        if self.inspection is None:
            found = await end_inspection(self.files, self._node)
            if found.answered and self._spec.network != UNENFORCED:
                raise SandboxStartFailed(
                    "the network of the pod is not closed, although a NetworkPolicy denies all connections: from inside "
                    f"answered {', '.join(found.answered)}; use a cluster whose network plugin enforces policies, or "
                    f"accept it with `unsafe: [network]` and `sandbox: {{network: {UNENFORCED}}}` in your own "
                    "configuration"
                )
            self.inspection = found
        return self.inspection

    async def attach(self) -> PodStream:
        """Attach to the guest.

        Raises:
            SandboxStartFailed: Its container does not start.
            ClusterError: The cluster refuses, or cannot be reached.
        """
        timeout_s = self._spec.kubernetes.start_timeout
        return await _attach("attach to the pod", self.cluster, self.name, GUEST, timeout_s)

    async def image(self) -> str:
        """The image with its digest: its name, if it contains that; else as the node reports it, a second later.

        Raises:
            SandboxStartFailed: It reports none in time.
            ClusterError: The cluster refuses, or cannot be reached.
        """
        named = str(self._spec.image)
        if "@" in named:
            return named
        timeout_s = self._spec.kubernetes.start_timeout
        pod = await await_pod(self.cluster, self.name, lambda pod: bool(_image_id(pod)), timeout_s)
        return _image_id(pod)

    async def check(self) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Look up the pod: that it was not changed, and what opens its network; return both.

        Raises:
            SandboxStartFailed: It was changed, or opened and the user has not accepted that.
            ClusterError: The cluster refuses, or cannot be reached.
        """
        return await check_pod(self.cluster, self._manifest, self._spec)

    async def delete(self) -> None:
        """Delete the pod; its node ends it afterwards.

        Raises:
            ClusterError: The cluster refuses, or cannot be reached.
        """
        await delete_pod(self.cluster, self.name, self._uid)

    async def aclose(self) -> None:
        """End the session, without which the pod stays."""
        with anyio.CancelScope(shield=True):
            await self.files.aclose()
            await self.cluster.aclose()

    async def remove(self) -> None:
        """Delete the pod, and end the session; a pod that cannot be deleted now is found later by its labels."""
        with anyio.CancelScope(shield=True):
            with suppress(RingfenceError), anyio.move_on_after(_REMOVE_S):
                await self.delete()
            await self.aclose()


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _node(pod: Mapping[str, Any]) -> str:
    """The address of the node that has taken a pod; empty before it has."""
    return str((pod.get("status") or {}).get("hostIP") or "")


def _image_id(pod: Mapping[str, Any]) -> str:
    return str(container_status(pod, GUEST).get("imageID") or "")


async def send_pod(cluster: Cluster, manifest: Mapping[str, Any], spec: SandboxSpec) -> Mapping[str, Any]:
    """Have the cluster make a pod; return the pod as made.

    Raises:
        SandboxStartFailed, ClusterError, AuthenticationFailed: As `SandboxPod.create`; the session is closed.
    """
    name = _name(manifest)
    try:
        _refuse_openings(cluster, spec, await ensure_policy(cluster, manifest["metadata"]["labels"]))
        with anyio.CancelScope(shield=True):  # the cluster would create it anyway
            made = await cluster.call(f"create pod {name!r}", "POST", cluster.path("pods"), body=manifest)
        _refuse_changes(cluster, manifest, made)
    except BaseException as exc:
        is_ours = not (isinstance(exc, ClusterError) and exc.reason == "AlreadyExists")
        await _give_up(cluster, name if is_ours else None)
        raise
    return cast("Mapping[str, Any]", made)


async def _give_up(cluster: Cluster, pod: str | None, uid: str | None = None) -> None:
    """Delete a pod, and end the session."""
    with anyio.CancelScope(shield=True):
        if pod is not None:
            with suppress(RingfenceError):
                await delete_pod(cluster, pod, uid)
        await cluster.aclose()


async def _attach(doing: str, cluster: Cluster, pod: str, container: str, timeout_s: float) -> PodStream:
    """Attach to a container as soon as it runs, which its node reports up to two seconds later."""
    end, pause_s = time.monotonic() + _EAGER_S, _FIRST_PAUSE_S
    while time.monotonic() < end:
        with suppress(ClusterError):
            return await cluster.open_stream(doing, pod, container)
        await anyio.sleep(pause_s)
        pause_s *= _SLOWER
    await await_pod(cluster, pod, lambda found: is_running(found, container), timeout_s)
    return await cluster.open_stream(doing, pod, container)


async def check_pod(
    cluster: Cluster, manifest: Mapping[str, Any], spec: SandboxSpec
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Look up a pod: that it was not changed, and what opens its network; return both.

    Raises:
        SandboxStartFailed, ClusterError: As `SandboxPod.check`.
    """
    path = cluster.path("pods", _name(manifest))
    pod, policies = await run_both(
        lambda: cluster.call("look up the pod", "GET", path), lambda: list_policies(cluster)
    )
    _refuse_changes(cluster, manifest, pod)
    openings = find_openings(policies, pod["metadata"].get("labels") or {})
    _refuse_openings(cluster, spec, openings)
    return pod, openings


def _refuse_openings(cluster: Cluster, spec: SandboxSpec, openings: tuple[str, ...]) -> None:
    if openings and spec.network != UNENFORCED:
        raise SandboxStartFailed(
            f"namespace {cluster.namespace!r} has NetworkPolicies that open sandboxes: {'; '.join(openings)}; give "
            "sandboxes a namespace of their own (sandbox.kubernetes.namespace), have those policies exclude "
            f"pods with the label app.kubernetes.io/managed-by=ringfence, or accept them with `unsafe: [network]` "
            f"and `sandbox: {{network: {UNENFORCED}}}` in your own configuration"
        )


def _refuse_changes(cluster: Cluster, manifest: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if changes := list(changes_of(manifest, found)):
        raise SandboxStartFailed(
            f"{cluster.name} did not make the pod as asked: {'; '.join(changes)}; nothing of yours ran in it. "
            "An admission controller, or another user, changed it: exempt the namespace, or name another "
            "(sandbox.kubernetes.namespace)"
        )


async def await_pod(
    cluster: Cluster, name: str, is_reached: Callable[[Mapping[str, Any]], bool], timeout_s: float
) -> Mapping[str, Any]:
    """Wait until a pod has reached a state; return it as it is then.

    Raises:
        SandboxStartFailed: It does not start, was deleted, or did not reach the state in time.
        ClusterError: The cluster refuses, or cannot be reached.
    """
    problem = None
    with anyio.move_on_after(timeout_s):
        async with aclosing(cluster.follow_pod(name)) as states:
            async for pod in states:
                if is_reached(pod):
                    return pod
                found = start_problem(pod)
                if problem is None or found is None or not found.is_repetition:
                    problem = found
                if problem is not None and problem.is_final:
                    raise SandboxStartFailed(f"the sandbox did not start: {problem.text}")
        raise SandboxStartFailed("the sandbox did not start: its pod was deleted from outside")
    said = problem.text if problem else await _last_warning(cluster, name)
    raise SandboxStartFailed(
        f"the sandbox did not start within {timeout_s:g} s: {said} (sandbox.kubernetes.start_timeout)"
    )


async def _last_warning(cluster: Cluster, name: str) -> str:
    """The newest warning about a pod, if this user may read events."""
    selector = f"involvedObject.name={name},type=Warning"
    with suppress(RingfenceError, KeyError):
        found = await cluster.call(
            "list events", "GET", cluster.path("events"), params={"fieldSelector": selector}
        )
        if found["items"]:
            return shown(str(found["items"][-1]["message"]))
    return "the node does not say why"


async def delete_pod(cluster: Cluster, name: str, uid: str | None = None) -> bool:
    """Delete a pod; return whether it was there. Its node ends it afterwards.

    Args:
        cluster: The session.
        name: The pod's name.
        uid: A pod of this name that is another one stays; None if it is not known.

    Raises:
        ClusterError: The cluster refuses, or cannot be reached.
    """
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}} if uid else None
    try:
        await cluster.call(f"delete pod {name!r}", "DELETE", cluster.path("pods", name), body=options)
    except ClusterError as exc:
        if not exc.is_absent and exc.reason != "Conflict":
            raise
        return False
    return True
