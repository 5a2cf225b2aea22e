"""Starts the guest as the first process of a container of a pod, and attaches to it."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.config.kubernetes import UNENFORCED
from ringfence.errors import PolicyRefused, RingfenceError, SandboxStartFailed
from ringfence.sandbox.base import AccessReport, Backend, Launch, Traits
from ringfence.sandbox.container.hardened_container import (
    HardenedContainer,
    ImageFacts,
    harden,
    plan_limits,
    started_facts,
)
from ringfence.sandbox.container.labels import labels_for
from ringfence.sandbox.seccomp import filter_bytes
from ringfence.sandbox.spec import SandboxSpec

if TYPE_CHECKING:
    from ringfence.sandbox.kubernetes.cluster import Cluster
    from ringfence.sandbox.kubernetes.fence import PodFence
    from ringfence.sandbox.kubernetes.isolation import Inspection
    from ringfence.sandbox.kubernetes.volume import PodVolume

_UNSEEN = "a pod does not see this machine's files"
_UNENFORCED = {"pids": "a pod has no limit on processes but that of its node's kubelet"}
_POLICY_PATH = "networkpolicies"
_NETWORKING = "apis/networking.k8s.io/v1"


class KubernetesBackend(Backend):
    """A pod: no network, no capabilities, never uid 0, read-only, under limits, without a token of the cluster."""

    name = "kubernetes"
    traits = Traits(needs_image=True, unseen=_UNSEEN, unenforced=_UNENFORCED)

    async def unavailable(self, spec: SandboxSpec | None = None) -> RingfenceError | None:
        """Why no cluster can be used."""
        if spec is not None and spec.image is None:
            return SandboxStartFailed(
                "it needs an image that the cluster's nodes have or can fetch: name one with --image"
            )
        try:
            async with await _open(spec) as cluster:
                await cluster.call("reach the cluster", "GET", "/version", timeout_s=10.0)
        except RingfenceError as exc:
            return exc
        return None

    async def examine_access(self, spec: SandboxSpec) -> AccessReport:
        """The permissions in the namespace of a spec."""
        async with await _open(spec) as cluster:
            from ringfence.sandbox.kubernetes.access import examine_access

            return await examine_access(cluster, spec.kubernetes.image_pull_secrets)

    async def make_volume(self, launch: Launch) -> "PodVolume":
        """Make a pod with an empty volume, and wait until it runs; its guest waits until `start` attaches to it."""
        from ringfence.sandbox.kubernetes.manifest import FILES
        from ringfence.sandbox.kubernetes.volume import PodVolume, delete_pod

        async with self._session(launch) as cluster:
            pod = await self._make(cluster, launch, self._harden(launch, volume=True))
            name = str(pod["metadata"]["name"])
            try:
                receiver = await cluster.open_stream("attach to the pod for the upload", name, FILES)
            except BaseException:
                with anyio.CancelScope(shield=True), suppress(RingfenceError):
                    await delete_pod(cluster, name)
                raise
            placement = launch.placement
            return PodVolume(cluster, name, placement.uid, placement.gid, pod, receiver, launch.spec)

    async def start(self, launch: Launch) -> "PodFence":
        """Make a pod, unless it was made with its volume; see that its network is closed, and attach to its guest."""
        from ringfence.sandbox.kubernetes.fence import PodFence
        from ringfence.sandbox.kubernetes.manifest import GUEST
        from ringfence.sandbox.kubernetes.volume import PodVolume, delete_pod

        volume = launch.volume if isinstance(launch.volume, PodVolume) else None
        began = time.monotonic()
        async with self._session(launch) as cluster:
            pod = (
                volume.pod
                if volume
                else await self._make(cluster, launch, self._harden(launch, volume=False))
            )
            name = str(pod["metadata"]["name"])
            try:
                inspection = await self._inspect(cluster, launch.spec, pod)
                checked = time.monotonic()
                stream = await cluster.open_stream("attach to the pod", name, GUEST)
            except BaseException:
                if volume is None:
                    with anyio.CancelScope(shield=True), suppress(RingfenceError):
                        await delete_pod(cluster, name)
                raise
            laps = {"network": checked - began, "attach": time.monotonic() - checked}
            image = ImageFacts(_image_id(pod), str(launch.spec.image), inspection.environment, volumes=())
            asked = self._harden(launch, volume=volume is not None, image=image)
            facts = started_facts(
                asked,
                launch,
                backend=self.name,
                engine=f"Kubernetes, {cluster.name}",
                runtime=asked.runtime or "the node's default",
                laps_ms={key: round(value * 1000, 3) for key, value in laps.items()},
            )
            facts = replace(
                facts,
                notes=(*facts.notes, *_notes(pod, inspection)),
                environment={**facts.environment, **_git_environment(launch)},
            )
            return PodFence(facts, stream, name, cluster, is_owner=volume is None)

    @asynccontextmanager
    async def _session(self, launch: Launch) -> AsyncIterator["Cluster"]:
        """A session for a launch: its volume's, or a new one, which is closed if the code within the context fails."""
        from ringfence.sandbox.kubernetes.cleanup import clean_up_once, remember
        from ringfence.sandbox.kubernetes.cluster_error import ClusterError
        from ringfence.sandbox.kubernetes.volume import PodVolume

        volume = launch.volume if isinstance(launch.volume, PodVolume) else None
        cluster = volume.cluster if volume else await _open(launch.spec)
        try:
            if volume is None:
                remember(launch.spec.engine, launch.spec.kubernetes.namespace)  # a later process looks there
                await clean_up_once(cluster)
            yield cluster
        except BaseException as exc:
            if volume is None:
                await cluster.aclose()
            if isinstance(exc, ClusterError):
                raise SandboxStartFailed(f"the sandbox did not start: {exc}") from exc
            raise

    def _harden(self, launch: Launch, *, volume: bool, image: ImageFacts | None = None) -> HardenedContainer:
        """Decide how the container is configured; nothing is known of the image before the pod runs."""
        spec = launch.spec
        if launch.placement.uid == 0 or launch.placement.gid == 0:
            raise PolicyRefused("a sandbox never runs as uid or gid 0", rule="no-root")
        if spec.image is None:
            raise SandboxStartFailed("sandbox backend 'kubernetes' needs an image: name one with --image")
        is_gvisor = spec.runtime is not None and (
            "gvisor" in spec.runtime or spec.runtime.startswith("runsc")
        )
        return harden(
            launch,
            image or ImageFacts(id="", reference=spec.image, environment={}, volumes=()),
            plan_limits(spec, _UNENFORCED, is_gvisor=is_gvisor, processors=0, key=0),
            labels=labels_for(launch.sandbox_id, launch.run_id, spec.ttl_s, spec.labels),
            guest_filter=filter_bytes("x86_64"),
            runtime=spec.runtime,
            masks_guest=is_gvisor,
            volume="workspace" if volume else None,
        )

    async def _make(self, cluster: "Cluster", launch: Launch, asked: HardenedContainer) -> Mapping[str, Any]:
        """Create the pod of a launch, check it, and return it once it runs; delete it if that fails."""
        from ringfence.sandbox.kubernetes.cluster_error import ClusterError
        from ringfence.sandbox.kubernetes.manifest import make_pod, mismatches
        from ringfence.sandbox.kubernetes.volume import delete_pod

        settings = launch.spec.kubernetes
        wanted = make_pod(asked, launch, settings)
        await _ensure_policy(cluster)
        name = str(wanted["metadata"]["name"])
        try:
            with anyio.CancelScope(shield=True):  # the cluster would create it anyway
                made = await cluster.call(f"create pod {name!r}", "POST", cluster.path("pods"), body=wanted)
            _refuse_changes(cluster, mismatches(wanted, made))
            running = await _await_running(cluster, name, settings.start_timeout)
            _refuse_changes(cluster, mismatches(wanted, running))  # until it runs, others may have changed it
            return running
        except BaseException as exc:
            if isinstance(exc, ClusterError) and exc.reason == "AlreadyExists":
                raise  # it is not ours
            with anyio.CancelScope(shield=True), suppress(RingfenceError):
                await delete_pod(cluster, name)
            raise

    async def _inspect(self, cluster: "Cluster", spec: SandboxSpec, pod: Mapping[str, Any]) -> "Inspection":
        """Look from inside the pod; refuse it if its network is not closed, unless the user has accepted that."""
        from ringfence.sandbox.kubernetes.isolation import inspect
        from ringfence.sandbox.kubernetes.openings import find_openings

        openings = await find_openings(cluster, pod["metadata"].get("labels") or {})
        if openings and spec.network != UNENFORCED:
            raise SandboxStartFailed(
                f"namespace {cluster.namespace!r} has NetworkPolicies that open sandboxes: {'; '.join(openings)}; give "
                "sandboxes a namespace of their own (sandbox.kubernetes.namespace), have those policies exclude "
                f"pods with the label app.kubernetes.io/managed-by=ringfence, or accept them with `unsafe: [network]` "
                f"and `sandbox: {{network: {UNENFORCED}}}` in your own configuration"
            )
        found = replace(await inspect(cluster, pod), openings=openings)
        if found.answered and spec.network != UNENFORCED:
            raise SandboxStartFailed(
                "the network of the pod is not closed, although a NetworkPolicy denies all connections: from inside "
                f"answered {', '.join(found.answered)}; use a cluster whose network plugin enforces policies, or accept "
                f"it with `unsafe: [network]` and `sandbox: {{network: {UNENFORCED}}}` in your own configuration"
            )
        return found

    async def remove_leftovers(self, sandbox_ids: frozenset[str], *, dry_run: bool = False) -> list[str]:
        """Remove leftovers of these sandboxes, and of all whose process is dead, from every cluster that was used."""
        try:
            from ringfence.sandbox.kubernetes.cleanup import remove_leftovers
        except ImportError:
            return []  # without the extra there was never a pod
        return await remove_leftovers(sandbox_ids, dry_run=dry_run)


async def _open(spec: SandboxSpec | None) -> "Cluster":
    try:
        from ringfence.sandbox.kubernetes.cluster import open_cluster
    except ImportError as exc:
        raise SandboxStartFailed(
            f"it needs a client ({exc.name} is not installed); install it with `pip install 'ringfence[kubernetes]'`"
        ) from exc
    return await open_cluster(
        None if spec is None else spec.engine, None if spec is None else spec.kubernetes.namespace
    )


def _refuse_changes(cluster: "Cluster", wrong: Iterable[str]) -> None:
    if found := list(wrong):
        raise SandboxStartFailed(
            f"{cluster.name} did not make the pod as asked: {'; '.join(found)}; nothing of yours ran in it. "
            "An admission controller, or another user, changed it: exempt the namespace, or name another "
            "(sandbox.kubernetes.namespace)"
        )


async def _ensure_policy(cluster: "Cluster") -> None:
    """Make the policy that denies all connections of sandboxes, unless it is there.

    Raises:
        SandboxStartFailed: One of that name is there, and allows something.
    """
    from ringfence.sandbox.kubernetes.cluster_error import ClusterError
    from ringfence.sandbox.kubernetes.manifest import POLICY_NAME, make_policy, policy_fault

    named = cluster.path(_POLICY_PATH, POLICY_NAME, group=_NETWORKING)
    try:
        found = await cluster.call("look up the network policy", "GET", named)
    except ClusterError as exc:
        if not exc.is_absent:
            raise
        path = cluster.path(_POLICY_PATH, group=_NETWORKING)
        try:
            await cluster.call("create the network policy", "POST", path, body=make_policy())
        except ClusterError as late:
            if late.reason != "AlreadyExists":
                raise
        return
    fault = policy_fault(found)
    if fault is not None:
        raise SandboxStartFailed(
            f"the NetworkPolicy {POLICY_NAME!r} in namespace {cluster.namespace!r} does not deny all connections: "
            f"{fault}; delete it (`kubectl -n {cluster.namespace} delete networkpolicy {POLICY_NAME}`), and it is made "
            "anew"
        )


async def _await_running(cluster: "Cluster", name: str, timeout_s: float) -> Mapping[str, Any]:
    """Wait until all containers of a pod run; return it as it is then."""
    from ringfence.sandbox.kubernetes.failure import is_running, start_problem

    problem = None
    with anyio.move_on_after(timeout_s):
        async with aclosing(cluster.follow_pod(name)) as states:
            async for pod in states:
                if is_running(pod):
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


async def _last_warning(cluster: "Cluster", name: str) -> str:
    """The newest warning about a pod, if this user may read events."""
    from ringfence.sandbox.kubernetes.cluster_error import shown

    selector = f"involvedObject.name={name},type=Warning"
    with suppress(RingfenceError, KeyError):
        found = await cluster.call(
            "list events", "GET", cluster.path("events"), params={"fieldSelector": selector}
        )
        if found["items"]:
            return shown(str(found["items"][-1]["message"]))
    return "the node does not say why"


def _image_id(pod: Mapping[str, Any]) -> str:
    """The digest of the guest's image, as its node reports it."""
    from ringfence.sandbox.kubernetes.failure import container_status
    from ringfence.sandbox.kubernetes.manifest import GUEST

    return str(container_status(pod, GUEST).get("imageID") or "unknown")


def _git_environment(launch: Launch) -> dict[str, str]:
    """Let git work in the workspace, whose directory, that of the volume, belongs to root."""
    workspace = launch.placement.workspace
    if workspace is None:
        return {}
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": str(workspace),
    }


def _notes(pod: Mapping[str, Any], inspection: "Inspection") -> list[str]:
    node = pod["spec"].get("nodeName")
    notes = [
        f"pod {pod['metadata']['name']} in namespace {pod['metadata']['namespace']} on node {node}",
        "programs in /tmp can be executed: a pod's volumes have no mount options",
    ]
    if inspection.openings:
        notes.append(f"UNSAFE: NetworkPolicies open the pod's network: {'; '.join(inspection.openings)}")
    if inspection.answered:
        answered = ", ".join(inspection.answered)
        notes.append(f"UNSAFE: the pod's network is not closed; from inside answered: {answered}")
    else:
        notes.append(
            "network: nothing answered from inside the pod (API server, node, metadata, names, Internet)"
        )
    return notes
