"""What a session with a cluster makes of a real API server's responses."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.kubernetes.control_plane import Namespace

from ringfence.errors import AuthenticationFailed
from ringfence.sandbox.kubernetes.cluster import Cluster, open_cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError

READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
KILLED = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}


def pod(name: str) -> dict[str, Any]:
    """A pod that the server takes."""
    container = {"name": "main", "image": "image.invalid/main:1"}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def create(cluster: Cluster, name: str) -> Any:
    """Create a pod through the session."""
    return await cluster.call("create the pod", "POST", cluster.path("pods"), body=pod(name))


async def test_a_pod_is_followed_from_its_creation_to_its_deletion(namespace: Namespace):
    """Each state of a pod is reported in order, and the end of the reports is its deletion."""
    async with await open_cluster() as cluster:
        await create(cluster, "web")
        namespace.bind("web")
        seen = []
        with anyio.fail_after(30):
            async for found in cluster.follow_pod("web"):
                phase = found["status"]["phase"]
                if phase not in seen:
                    seen.append(phase)
                    if phase == "Pending":
                        namespace.set_pod_status("web", **RUNNING)
                    elif phase == "Running":
                        namespace.set_pod_status("web", phase="Failed", containerStatuses=[KILLED])
                    else:
                        ended = found["status"]["containerStatuses"][0]
                        await cluster.call("delete the pod", "DELETE", cluster.path("pods", "web"))
    assert seen == ["Pending", "Running", "Failed"]
    assert ended["state"]["terminated"]["reason"] == "OOMKilled"


async def test_a_bound_pod_is_there_until_its_node_confirms_its_deletion(namespace: Namespace):
    """A request to delete a pod on a node is no proof that it has gone: it is reported until the node confirms."""
    async with await open_cluster() as cluster:
        await create(cluster, "web")
        namespace.bind("web")
        namespace.set_pod_status("web", **RUNNING)
        await cluster.call("delete the pod", "DELETE", cluster.path("pods", "web"))
        found = await cluster.call("read the pod", "GET", cluster.path("pods", "web"))
        assert found["metadata"]["deletionTimestamp"]
        namespace.confirm_deletion("web")
        with pytest.raises(ClusterError) as error:
            await cluster.call("read the pod", "GET", cluster.path("pods", "web"))
    assert error.value.is_absent


async def test_a_pod_of_the_same_name_is_refused(namespace: Namespace):
    """The second creation of a name is refused with the reason that the API defines for it."""
    async with await open_cluster() as cluster:
        await create(cluster, "web")
        with pytest.raises(ClusterError) as error:
            await create(cluster, "web")
    assert (error.value.status, error.value.reason) == (409, "AlreadyExists")


async def test_a_verb_that_the_role_lacks_is_named(namespace: Namespace, monkeypatch: pytest.MonkeyPatch):
    """A service account that may only read is told which verb on which resource it lacks."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.account("reader", [READ_PODS])))
    async with await open_cluster() as cluster:
        found = await cluster.call("list pods", "GET", cluster.path("pods"))
        assert found["items"] == []
        with pytest.raises(AuthenticationFailed) as error:
            await create(cluster, "web")
    text = str(error.value)
    assert f"system:serviceaccount:{namespace.name}:reader" in text
    assert 'cannot create resource "pods"' in text
    assert "ringfence doctor --sandbox kubernetes" in text


async def test_a_service_account_has_no_rights_elsewhere(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
):
    """A role holds in its own namespace only."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.account("reader", [READ_PODS])))
    async with await open_cluster(namespace="default") as cluster:
        with pytest.raises(AuthenticationFailed, match='namespace "default"'):
            await cluster.call("list pods", "GET", cluster.path("pods"))


async def test_a_quota_that_is_used_up_is_told_from_missing_rights(namespace: Namespace):
    """What a quota refuses is no fault of the credentials, and the message says what to do."""
    namespace.set_quota(pods="1")
    async with await open_cluster() as cluster:
        await create(cluster, "first")
        with pytest.raises(ClusterError, match="exceeded quota: quota") as error:
            await create(cluster, "second")
    assert error.value.status == 403
    assert "end other sandboxes" in str(error.value)


async def test_a_namespace_that_is_being_deleted_is_named(namespace: Namespace):
    """The message names the namespace, and the setting to change."""
    namespace.terminate()
    async with await open_cluster() as cluster:
        with pytest.raises(ClusterError, match=r"sandbox\.kubernetes\.namespace") as error:
            await create(cluster, "web")
    assert repr(namespace.name) in str(error.value)


async def test_a_namespace_that_does_not_exist_is_named(namespace: Namespace):
    """The message has the command that creates it."""
    async with await open_cluster(namespace="nowhere") as cluster:
        with pytest.raises(ClusterError, match="kubectl create namespace nowhere"):
            await create(cluster, "web")


async def test_a_token_that_the_server_does_not_know_is_an_authentication_failure(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
):
    """The message names the context, and not the token."""
    kubeconfig: Path = namespace.kubeconfig_with("stranger", {"token": "s3cret-of-nobody"})
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    async with await open_cluster() as cluster:
        with pytest.raises(AuthenticationFailed) as error:
            await create(cluster, "web")
    assert "'stranger'" in str(error.value)
    assert "s3cret" not in str(error.value)
