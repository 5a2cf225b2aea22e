"""An API server of Kubernetes with its etcd, as `scripts/kubernetes.sh up` starts them: one for each test session.

No kubelet runs and no controller: a pod is what the tests make of it (`Namespace.set_pod_status`). Authorization by
roles, quotas, watches and the defaults that the server sets are its own.
"""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig

REQUIRED = "TEST_REQUIRES_KUBERNETES"
"""Set where its absence is a failure."""
SCRIPT = Path(__file__).parents[2] / "scripts/kubernetes.sh"
MERGE_PATCH = "application/merge-patch+json"
NODE = "node-1"
"""Name of the node that `Namespace.bind` gives a pod."""
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
"""The test session, in all of its processes."""
_PATIENCE_S = 30.0
_RBAC = "apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class Namespace:
    """A namespace of its own for one test.

    Attributes:
        name: Its name.
        administrator: A client that may do everything.
        directory: Where kubeconfigs are written.
        kubeconfig: The administrator's; its context is in this namespace.
    """

    name: str
    administrator: httpx2.Client
    directory: Path
    kubeconfig: Path

    def path(self, resource: str, name: str = "", *, group: str = "api/v1") -> str:
        """The path of objects in the namespace: `path("pods", "web/status")`."""
        return f"/{group}/namespaces/{self.name}/{resource}" + (f"/{name}" if name else "")

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """Send a request of the administrator, which is to succeed; return the parsed response."""
        content = None if body is None else json.dumps(body).encode()
        response = self.administrator.request(
            method, path, content=content, headers={"Content-Type": content_type}
        )
        assert response.is_success, f"{method} {path}: {response.text}"
        return response.json()

    def make_pod(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a pod of one container `main`; return it as it was stored."""
        container = {"name": "main", "image": "image.invalid/main:1"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], **spec},
        }
        made: dict[str, Any] = self.request("POST", self.path("pods"), body)
        return made

    def bind(self, pod: str) -> None:
        """Assign a pod to the node `NODE`, as the scheduler does: its deletion waits for `confirm_deletion`, then."""
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        self.request("POST", self.path("pods", f"{pod}/binding"), body)

    def set_pod_status(self, pod: str, **status: Any) -> None:
        """Change fields of a pod's status (`PodStatus` of the API), as the kubelet does."""
        path = self.path("pods", f"{pod}/status")
        self.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    def confirm_deletion(self, pod: str) -> None:
        """Remove a pod that is being deleted, as the kubelet does when its containers have ended."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self.request("DELETE", self.path("pods", pod), options)

    def set_quota(self, **hard: str) -> None:
        """Limit what the namespace may hold: `set_quota(pods="1")`. No object counts that is there already."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}}
        self.request("POST", self.path("resourcequotas"), {**quota, "spec": {"hard": hard}})
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        path = self.path("resourcequotas", "quota/status")
        self.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    def terminate(self) -> None:
        """Have the namespace be deleted, which no controller finishes."""
        self.request("DELETE", f"/api/v1/namespaces/{self.name}")

    def account(self, name: str, rules: Sequence[Mapping[str, Sequence[str]]]) -> Path:
        """Create a service account with a role of these rules; return a kubeconfig with its token.

        Args:
            name: Of the account, the role and the kubeconfig's context.
            rules: `PolicyRule` of the API: `[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]`.
        """
        metadata = {"metadata": {"name": name}}
        self.request("POST", self.path("serviceaccounts"), metadata)
        self.request("POST", self.path("roles", group=_RBAC), {**metadata, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {**metadata, "subjects": [subject], "roleRef": role}
        self.request("POST", self.path("rolebindings", group=_RBAC), binding)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self.request("POST", self.path("serviceaccounts", f"{name}/token"), asked)
        kubeconfig = self.kubeconfig_with(name, {"token": made["status"]["token"]})
        self._await_permissions(kubeconfig, rules)
        return kubeconfig

    def kubeconfig_with(self, context: str, user: Mapping[str, str]) -> Path:
        """Write a kubeconfig of one context, in this namespace, with these credentials."""
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = dict(user)
        config["contexts"][0]["name"] = config["current-context"] = context
        file = self.directory / f"{context}.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    def _await_permissions(self, kubeconfig: Path, rules: Sequence[Mapping[str, Sequence[str]]]) -> None:
        """Wait until the server, which learns of accounts and roles by watches, knows them."""
        deadline = time.monotonic() + _PATIENCE_S
        with client_of(kubeconfig) as client:
            while not all(self._is_allowed(client, rule) for rule in rules or [{}]):
                assert time.monotonic() < deadline, f"the permissions of {kubeconfig} have no effect"
                time.sleep(0.02)

    def _is_allowed(self, client: httpx2.Client, rule: Mapping[str, Sequence[str]]) -> bool:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        attributes: dict[str, str] = {"namespace": self.name}
        if rule:
            resource, _, subresource = rule["resources"][0].partition("/")
            attributes |= {"verb": rule["verbs"][0], "group": rule["apiGroups"][0]}
            attributes |= {"resource": resource, "subresource": subresource}
        response = client.post(path, json={"spec": {"resourceAttributes": attributes}})
        return response.is_success and (not rule or bool(response.json()["status"]["allowed"]))


class ControlPlane:
    """An API server that runs.

    Args:
        kubeconfig: The administrator's.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._client = client_of(kubeconfig)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def make_namespace(self, directory: Path) -> Namespace:
        """A new namespace, whose kubeconfigs are written to a directory."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        config = json.loads(self._kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = name
        kubeconfig = directory / "administrator.kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        namespace = Namespace(name, self._client, directory, kubeconfig)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        namespace.request("POST", "/api/v1/namespaces", body)
        return namespace


def client_of(kubeconfig: Path) -> httpx2.Client:
    """A client with the credentials of a kubeconfig's current context."""
    config = KubeConfig.from_file(kubeconfig).get()
    assert config is not None
    return httpx2.Client(**ConnectionParams(timeout=httpx2.Timeout(_PATIENCE_S)).httpx_params(config))


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Join the test session's control plane: the first process starts it, the last one ends it.

    Skips where the programs are not installed.
    """
    _skip_without_programs()
    base = Path(tempfile.gettempdir()) / f"ringfence-control-planes-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    _end_abandoned(base)
    directory = base / _RUN[:12]
    directory.mkdir(exist_ok=True)
    state = directory / "state"
    with (directory / "gate").open("w") as gate, (directory / "users").open("w") as users:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not (state / "ready").exists():
            _run(state, "up")
            (state / "ready").touch()
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            with ControlPlane(state / "kubeconfig") as running:
                yield running
        finally:
            fcntl.flock(gate, fcntl.LOCK_EX)
            if _lock_alone(users):
                _run(state, "down")


def _skip_without_programs() -> None:
    missing = subprocess.run([SCRIPT, "missing"], capture_output=True, text=True, check=False)
    if missing.returncode:
        reason = f"not installed: {' '.join(missing.stdout.split())}; as root: scripts/kubernetes.sh install"
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(reason)


def _run(state: Path, command: str) -> None:
    """Run the script; what it starts must not be taken for a process of a test, by its environment."""
    kept = ("PATH", "TMPDIR", "KUBERNETES_PROGRAMS")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["KUBERNETES_STATE"] = str(state)
    done = subprocess.run(
        [SCRIPT, command], env=environment, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr


def _end_abandoned(base: Path) -> None:
    """End what sessions have left that were killed."""
    for directory in base.iterdir():
        if directory.name == _RUN[:12] or not (directory / "users").exists():
            continue
        with (directory / "gate").open("w") as gate, (directory / "users").open("w") as users:
            if _lock_alone(gate) and _lock_alone(users):
                _run(directory / "state", "down")
                shutil.rmtree(directory, ignore_errors=True)


def _lock_alone(file: Any) -> bool:
    """Take a lock, or turn a shared one into one of this process alone; whether nobody else holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
