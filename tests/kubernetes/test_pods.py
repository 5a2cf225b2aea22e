"""What a real API server makes of a sandbox's pod, its network policy, and what dead processes left."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.kubernetes.control_plane import Namespace

from ringfence.config.kubernetes import KubernetesPods
from ringfence.errors import SandboxStartFailed
from ringfence.sandbox import Placement, SandboxSpec
from ringfence.sandbox.base import Launch
from ringfence.sandbox.container.labels import HOLDER, instance_id
from ringfence.sandbox.kubernetes.backend import KubernetesBackend
from ringfence.sandbox.kubernetes.cleanup import remove_leftovers
from ringfence.sandbox.kubernetes.manifest import POLICY_NAME
from ringfence.sandbox.protocol.loader import guest_arguments

NETWORKING = "apis/networking.k8s.io/v1"
RUNNING: list[dict[str, Any]] = [{"name": name, "state": {"running": {}}} for name in ("sandbox", "files")]
SETTINGS = KubernetesPods.model_validate(
    {
        "claims": [{"name": "cache", "target": "/cache"}],
        "node_selector": {"pool": "agents"},
        "tolerations": [{"key": "agents"}],
        "image_pull_secrets": ["registry"],
    }
)


def launch(sandbox_id: str, **changes: Any) -> Launch:
    """The launch of a sandbox with a workspace."""
    spec = SandboxSpec(**{"backend": "kubernetes", "image": "image.invalid/agent:1", "cpus": 1.5, **changes})
    place = Placement(1500, 1500, Path("/w"), Path("/w"), upload="all")
    return Launch(sandbox_id, spec, place, guest_arguments(), run_id="2026-01-01T00-00-00-abcd")


async def made(
    namespace: Namespace, order: Launch, meanwhile: Callable[[str], object] | None = None
) -> dict[str, Any]:
    """Make the pod of a launch, while the test is its node; return the pod as it was stored."""
    name = f"ringfence-{order.sandbox_id}"
    async with anyio.create_task_group() as tasks:

        async def run_pod() -> None:
            path = namespace.path("pods", name)
            while not namespace.administrator.get(path).is_success:  # noqa: ASYNC110 -- of another process
                await anyio.sleep(0.02)
            (
                meanwhile
                or (lambda pod: namespace.set_pod_status(pod, phase="Running", containerStatuses=RUNNING))
            )(name)

        tasks.start_soon(run_pod)
        volume = await KubernetesBackend().make_volume(order)
        await volume.cluster.aclose()
    pod: dict[str, Any] = namespace.request("GET", namespace.path("pods", name))
    return pod


@pytest.mark.parametrize("settings", [KubernetesPods(), SETTINGS], ids=["defaults", "all settings"])
async def test_a_server_takes_the_pod_as_it_was_asked_for(
    namespace: Namespace, settings: KubernetesPods
) -> None:
    """A server stores every field of the pod; what it completes is taken for no change."""
    for name, kind in (("cache", "persistentvolumeclaims"), ("registry", "secrets")):
        if kind == "secrets":
            namespace.request("POST", namespace.path(kind), {"metadata": {"name": name}})
    pod = await made(namespace, launch("abc", kubernetes=settings))
    spec = pod["spec"]
    assert spec["securityContext"]["runAsUser"] == 1500
    assert spec["automountServiceAccountToken"] is False
    assert {one["name"] for one in spec["containers"]} == {"sandbox", "files"}
    assert spec["activeDeadlineSeconds"] == 7 * 86_400
    assert spec["nodeSelector"] == {**settings.node_selector, "kubernetes.io/arch": "amd64"}
    assert pod["metadata"]["labels"]["ringfence.instance"] == instance_id()


async def test_one_policy_denies_the_network_of_all_sandboxes(namespace: Namespace) -> None:
    """The first sandbox of a namespace makes the policy, which further ones find; it has no rule."""
    await made(namespace, launch("a"))
    first = namespace.request("GET", namespace.path("networkpolicies", POLICY_NAME, group=NETWORKING))
    await made(namespace, launch("b"))
    assert namespace.request("GET", namespace.path("networkpolicies", POLICY_NAME, group=NETWORKING)) == first
    assert set(first["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    assert not {"ingress", "egress"} & first["spec"].keys()


async def test_a_policy_that_allows_something_stops_the_start(namespace: Namespace) -> None:
    """Where somebody changed the policy so that it allows something, no pod is made, and the error says how to go on."""
    await made(namespace, launch("a"))
    path = namespace.path("networkpolicies", POLICY_NAME, group=NETWORKING)
    namespace.request("PATCH", path, {"spec": {"egress": [{}]}}, content_type="application/merge-patch+json")
    with pytest.raises(SandboxStartFailed, match="allows connections; delete it"):
        await KubernetesBackend().make_volume(launch("b"))
    assert not namespace.administrator.get(namespace.path("pods", "ringfence-b")).is_success


async def test_a_quota_is_told_in_the_servers_words(namespace: Namespace) -> None:
    """A pod that exceeds the namespace's quota is refused with the quota's name and a next step."""
    namespace.set_quota(pods="0")
    with pytest.raises(SandboxStartFailed, match=r"exceeded quota: quota.*--memory"):
        await KubernetesBackend().make_volume(launch("a"))


async def test_an_image_that_cannot_be_fetched_ends_the_wait(namespace: Namespace) -> None:
    """A pod whose node reports that its image cannot be fetched is deleted, and the node's words are the error."""
    said = "rpc error: code = NotFound desc = failed to pull: registry.example.com/x:1: not found"
    waiting = {"reason": "ErrImagePull", "message": said}
    state = [{"name": name, "state": {"waiting": waiting}} for name in ("sandbox", "files")]

    def report(pod: str) -> None:
        namespace.set_pod_status(pod, phase="Pending", containerStatuses=state)

    with pytest.RaisesGroup(pytest.RaisesExc(SandboxStartFailed, match="failed to pull")):
        await made(namespace, launch("a"), report)
    assert not namespace.administrator.get(namespace.path("pods", "ringfence-a")).is_success


# --- what dead processes left


def holder(namespace: Namespace, name: str, value: str) -> None:
    """Let a pod be held by another process."""
    body = {"metadata": {"annotations": {HOLDER: value}}}
    path = namespace.path("pods", name)
    namespace.request("PATCH", path, body, content_type="application/merge-patch+json")


async def test_pods_of_dead_processes_are_removed(namespace: Namespace) -> None:
    """What a dead process left is deleted, what a living one holds stays; a dry run only names it."""
    await made(namespace, launch("dead"))
    await made(namespace, launch("alive"))
    mine = namespace.request("GET", namespace.path("pods", "ringfence-alive"))["metadata"]["annotations"][
        HOLDER
    ]
    boot, space, _pid, started = mine.split(":")
    holder(namespace, "ringfence-dead", f"{boot}:{space}:{os.getpid()}:{int(started) + 1}")
    assert await remove_leftovers(frozenset(), dry_run=True) == ["pod ringfence-dead"]
    assert await remove_leftovers(frozenset()) == ["pod ringfence-dead"]
    assert await remove_leftovers(frozenset()) == []
    assert namespace.administrator.get(namespace.path("pods", "ringfence-alive")).is_success


async def test_a_named_sandbox_is_removed_whoever_holds_it(namespace: Namespace) -> None:
    """A sandbox that its caller knows to be dead is removed by its id."""
    await made(namespace, launch("a"))
    await made(namespace, launch("b"))
    assert await remove_leftovers(frozenset({"a"})) == ["pod ringfence-a"]
    assert namespace.administrator.get(namespace.path("pods", "ringfence-b")).is_success


@pytest.mark.parametrize(
    "labels",
    [
        {"ringfence.instance": "another"},
        {"ringfence.sandbox": "another"},
        {"app.kubernetes.io/managed-by": None},
    ],
    ids=["another installation", "another name", "another manager"],
)
async def test_what_is_not_ours_stays(namespace: Namespace, labels: dict[str, str | None]) -> None:
    """A pod of another installation, or whose labels do not match its name, is never deleted."""
    await made(namespace, launch("a"))
    path = namespace.path("pods", "ringfence-a")
    namespace.request(
        "PATCH", path, {"metadata": {"labels": labels}}, content_type="application/merge-patch+json"
    )
    holder(namespace, "ringfence-a", "another-boot:1:1:1")
    assert await remove_leftovers(frozenset({"a", "another"})) == []
    assert namespace.administrator.get(path).is_success
