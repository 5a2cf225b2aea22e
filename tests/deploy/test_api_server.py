"""What a real API server says of deploy/kubernetes: it takes every object, and grants what the Role names only."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.rendered import FOLDERS, ROOT, objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SCRIPT = ROOT / "scripts" / "kubernetes.sh"
PROGRAMS = Path(os.environ.get("KUBERNETES_PROGRAMS", "/usr/local/lib/ringfence-kubernetes/1.20.2"))
WORKER, DAEMON = (f"system:serviceaccount:ringfence:ringfence-{name}" for name in ("worker", "daemon"))


class Server:
    """An API server of these tests' own.

    Args:
        kubeconfig: Of its administrator.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        return subprocess.run(
            ["kubectl", "--kubeconfig", str(self._kubeconfig), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def apply(self, found: list[dict[str, Any]], *words: str) -> None:
        """Apply objects; each must be accepted."""
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
        done = self.kubectl("apply", *words, "-f", "-", stdin=content)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(found)

    def may(self, account: str, verb: str, resource: str, namespace: str = "ringfence") -> bool:
        """Whether an account may do something, by the server's own judgement."""
        kind, _, part = resource.partition("/")
        words = (verb, kind, f"--subresource={part}", "--as", account, "-n", namespace)
        done = self.kubectl("auth", "can-i", *words)
        assert done.stdout.strip() in ("yes", "no"), done
        return done.stdout.strip() == "yes"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An API server with etcd, without nodes; skips where the programs are not built."""
    if not (PROGRAMS / "kube-apiserver").is_file() or shutil.which("kubectl") is None:
        pytest.skip("no API server is built: `scripts/kubernetes.sh install` does it")
    state = Path(tempfile.mkdtemp(prefix="ringfence-deploy-"))
    environment = {**os.environ, "KUBERNETES_STATE": str(state)}
    try:
        subprocess.run(
            [SCRIPT, "up"],
            env=environment,
            check=True,
            timeout=180,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        yield Server(state / "kubeconfig")
    finally:
        subprocess.run([SCRIPT, "down"], env=environment, check=True, timeout=60, capture_output=True)
        shutil.rmtree(state, ignore_errors=True)


def _known(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects; a PodDisruptionBudget in the version that servers before 1.21 know, with the same fields."""
    return [
        {**one, "apiVersion": "policy/v1beta1"} if one["kind"] == "PodDisruptionBudget" else one
        for one in found
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_is_accepted(server: Server, folder: str):
    """The API server validates and admits each object as it would when it is applied."""
    found = _known(objects(folder))
    server.apply([one for one in found if one["kind"] == "Namespace"])
    server.apply(found, "--dry-run=server")


def test_the_role_grants_what_sandboxes_need_and_nothing_else(server: Server):
    """A worker makes, follows and removes pods in its namespace; it reads no Secret, and has no right elsewhere."""
    kinds = ("Namespace", "ServiceAccount", "Role", "RoleBinding")
    server.apply([one for one in objects() if one["kind"] in kinds])
    needed = [
        *((verb, "pods") for verb in ("create", "get", "list", "watch", "patch", "delete")),
        *((verb, f"pods/{stream}") for verb in ("create", "get") for stream in ("attach", "exec")),
        ("list", "events"),
        *((verb, "networkpolicies.networking.k8s.io") for verb in ("create", "get")),
    ]
    assert [one for one in needed if not server.may(WORKER, *one)] == []
    refused = [
        ("get", "secrets"),
        ("list", "secrets"),
        ("delete", "networkpolicies.networking.k8s.io"),
        ("update", "networkpolicies.networking.k8s.io"),
        ("create", "deployments.apps"),
        ("create", "serviceaccounts/token"),
        ("get", "pods/log"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
    ]
    assert [one for one in refused if server.may(WORKER, *one)] == []
    assert not server.may(WORKER, "get", "pods", "default")
    assert not any(server.may(DAEMON, *one) for one in needed)
