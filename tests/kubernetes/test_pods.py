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
from ringfence.sandbox.kubernetes.cleanup import remember, remove_leftovers
from ringfence.sandbox.kubernetes.cluster import open_cluster
from ringfence.sandbox.kubernetes.failure import is_running
from ringfence.sandbox.kubernetes.manifest import make_pod
from ringfence.sandbox.kubernetes.pod import await_pod, check_pod, send_pod
from ringfence.sandbox.kubernetes.policy import POLICY_NAME
from ringfence.sandbox.protocol.loader import guest_arguments

NETWORKING = "apis/networking.k8s.io/v1"
RUNNING: list[dict[str, Any]] = [{"name": name, "state": {"running": {}}} for name in ("files", "sandbox")]
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


def asked(order: Launch) -> dict[str, Any]:
    """The pod of a launch."""
    return make_pod(KubernetesBackend()._harden(order, volume=True), order, order.spec.kubernetes)


async def report_when_made(namespace: Namespace, name: str, report: Callable[[str], object]) -> None:
    """Be the node of a pod: wait until it is there, and report its state."""
    while not namespace.administrator.get(namespace.path("pods", name)).is_success:  # noqa: ASYNC110 -- of another process
        await anyio.sleep(0.02)
    report(name)


async def made(
    namespace: Namespace,
    order: Launch,
    meanwhile: Callable[[str], object] | None = None,
    manifest: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Make the pod of a launch, while the test is its node; return the pod as it was stored."""
    name = f"ringfence-{order.sandbox_id}"
    async with anyio.create_task_group() as tasks:
        running = meanwhile or (lambda pod: run_pod(namespace, pod))
        tasks.start_soon(report_when_made, namespace, name, running)
        remember(None, None)
        async with await open_cluster() as cluster:  # no container runs here that could be attached to
            manifest = manifest or asked(order)
            await send_pod(cluster, manifest, order.spec)
            await await_pod(cluster, name, lambda pod: is_running(pod, "sandbox"), 60.0)
            await check_pod(cluster, manifest, order.spec)
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


THEIRS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "theirs"},
    "spec": {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]},
}


def allow_all(namespace: Namespace) -> None:
    """Make a policy that opens all pods of the namespace, as another user."""
    namespace.request("POST", namespace.path("networkpolicies", group=NETWORKING), THEIRS)


def run_pod(namespace: Namespace, name: str) -> None:
    """Report a pod as running."""
    namespace.set_pod_status(name, phase="Running", containerStatuses=RUNNING)


def merge(namespace: Namespace, name: str, change: dict[str, Any]) -> None:
    """Change a pod, as another user."""
    namespace.request(
        "PATCH", namespace.path("pods", name), change, content_type="application/merge-patch+json"
    )


async def test_a_policy_of_others_that_opens_sandboxes_stops_the_start(namespace: Namespace) -> None:
    """Policies add up: where another one selects sandboxes and allows something, the sandbox is refused and named."""
    allow_all(namespace)
    with pytest.raises(
        SandboxStartFailed, match=r"'theirs' selects them and allows egress.*namespace of their own"
    ):
        await KubernetesBackend().make_volume(launch("a"))
    assert not namespace.administrator.get(namespace.path("pods", "ringfence-a")).is_success


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}, id="label of the policy"
        ),
        pytest.param({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "open"}}}, id="network"),
        pytest.param({"spec": {"activeDeadlineSeconds": 60}}, id="deadline"),
    ],
)
async def test_a_pod_that_is_changed_before_it_runs_is_refused(
    namespace: Namespace, change: dict[str, Any]
) -> None:
    """What another user, or a controller, changes after the pod was made is found, too."""

    def meanwhile(name: str) -> None:
        merge(namespace, name, change)
        run_pod(namespace, name)

    with pytest.RaisesGroup(pytest.RaisesExc(SandboxStartFailed, match="did not make the pod as asked")):
        await made(namespace, launch("a"), meanwhile)


async def test_a_pod_of_others_with_our_name_stays(namespace: Namespace) -> None:
    """A pod that is there before ours is neither used nor deleted."""
    theirs = namespace.make_pod("ringfence-a")
    with pytest.raises(SandboxStartFailed, match="already exists"):
        await KubernetesBackend().make_volume(launch("a"))
    found = namespace.request("GET", namespace.path("pods", "ringfence-a"))
    assert found["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in found["metadata"]


@pytest.mark.parametrize(
    ("kind", "said"), [("policy", "'theirs' selects them"), ("label", "did not make the pod as asked: label")]
)
async def test_a_warm_pod_that_was_opened_is_not_taken_over(
    namespace: Namespace, kind: str, said: str
) -> None:
    """What was opened while it waited is refused; one that was not is taken over."""
    order = launch("a")
    pod = asked(order)
    await made(namespace, order, manifest=pod)
    async with await open_cluster() as cluster:
        await check_pod(cluster, pod, order.spec)
    if kind == "policy":
        allow_all(namespace)
    else:
        merge(namespace, "ringfence-a", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "x"}}})
    async with await open_cluster() as cluster:
        with pytest.raises(SandboxStartFailed, match=said):
            await check_pod(cluster, pod, order.spec)


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

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report_when_made, namespace, "ringfence-a", report)
        with pytest.raises(SandboxStartFailed, match="failed to pull"):
            await KubernetesBackend().make_volume(launch("a"))
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


async def test_a_pod_that_is_ending_is_not_counted(namespace: Namespace) -> None:
    """A pod that was deleted, and whose node has not confirmed its end, is nothing that was left."""
    await made(namespace, launch("a"))
    merge(namespace, "ringfence-a", {"metadata": {"finalizers": ["example.com/node"]}})
    namespace.request("DELETE", namespace.path("pods", "ringfence-a"))
    assert await remove_leftovers(frozenset({"a"})) == []
    merge(namespace, "ringfence-a", {"metadata": {"finalizers": None}})
    assert not namespace.administrator.get(namespace.path("pods", "ringfence-a")).is_success


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
