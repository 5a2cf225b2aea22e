"""Starts the guest as the first process of a container of a pod, and attaches to it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    from ringfence.sandbox.kubernetes.pod import SandboxPod
    from ringfence.sandbox.kubernetes.volume import PodVolume

_UNSEEN = "a pod does not see this machine's files"
_UNENFORCED = {"pids": "a pod has no limit on processes but that of its node's kubelet"}


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
        """Make a pod with an empty volume, whose network is closed; its guest waits until `start` attaches to it."""
        from ringfence.sandbox.kubernetes.volume import PodVolume

        with _start_errors():
            pod = await self._create_pod(launch, volume=True)
            try:
                await pod.inspect()
            except BaseException:
                await pod.remove()
                raise
        return PodVolume(pod, launch.placement.uid, launch.placement.gid)

    async def start(self, launch: Launch) -> "PodFence":
        """Make a pod, unless it was made with its volume, and attach to its guest; see that its network is closed."""
        from ringfence.sandbox.kubernetes.fence import PodFence
        from ringfence.sandbox.kubernetes.volume import PodVolume

        volume = launch.volume if isinstance(launch.volume, PodVolume) else None
        with _start_errors():
            pod = volume.pod if volume else await self._create_pod(launch, volume=False)
            began = time.monotonic()
            try:
                stream = await pod.attach()
                found, openings = await pod.check()
                inspection = await pod.inspect()
                if volume is None:
                    await pod.files.aclose()
                image_id = await pod.image()
            except BaseException:
                if volume is None:
                    await pod.remove()
                raise
        laps = {"pod": pod.start_s, "attach": time.monotonic() - began}
        image = ImageFacts(image_id, str(launch.spec.image), inspection.environment, volumes=())
        container = self._harden(launch, volume=volume is not None, image=image)
        facts = started_facts(
            container,
            launch,
            backend=self.name,
            engine=f"Kubernetes, {pod.cluster.name}",
            runtime=container.runtime or "the node's default",
            laps_ms={key: round(value * 1000, 3) for key, value in laps.items()},
        )
        facts = replace(
            facts,
            notes=(*facts.notes, *_notes(found, inspection, openings)),
            environment={**facts.environment, **_git_environment(launch)},
        )
        return PodFence(facts, stream, pod, is_owner=volume is None)

    async def _create_pod(self, launch: Launch, *, volume: bool) -> "SandboxPod":
        """Open a session, and make the pod of a launch."""
        from ringfence.sandbox.kubernetes.cleanup import clean_up_once, remember
        from ringfence.sandbox.kubernetes.manifest import make_pod
        from ringfence.sandbox.kubernetes.pod import SandboxPod

        spec = launch.spec
        manifest = make_pod(self._harden(launch, volume=volume), launch, spec.kubernetes)
        cluster = await _open(spec)
        try:
            remember(spec.engine, spec.kubernetes.namespace)  # a later process looks there
            await clean_up_once(cluster)
        except BaseException:
            await cluster.aclose()
            raise
        return await SandboxPod.create(cluster, manifest, spec)

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


@contextmanager
def _start_errors() -> Iterator[None]:
    """Report the errors of a cluster as those of a sandbox that did not start."""
    from ringfence.sandbox.kubernetes.cluster_error import ClusterError

    try:
        yield
    except ClusterError as exc:
        raise SandboxStartFailed(f"the sandbox did not start: {exc}") from exc


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


def _notes(pod: Mapping[str, Any], inspection: "Inspection", openings: tuple[str, ...]) -> list[str]:
    node = pod["spec"].get("nodeName")
    notes = [
        f"pod {pod['metadata']['name']} in namespace {pod['metadata']['namespace']} on node {node}",
        "programs in /tmp can be executed: a pod's volumes have no mount options",
    ]
    if openings:
        notes.append(f"UNSAFE: NetworkPolicies open the pod's network: {'; '.join(openings)}")
    if inspection.answered:
        answered = ", ".join(inspection.answered)
        notes.append(f"UNSAFE: the pod's network is not closed; from inside answered: {answered}")
    else:
        notes.append(
            "network: nothing answered from inside the pod (API server, node, metadata, names, Internet)"
        )
    return notes
