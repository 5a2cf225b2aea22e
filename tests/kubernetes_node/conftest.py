"""A node of Kubernetes, as `scripts/kubernetes.sh up node` starts it: `make test-kubernetes` runs these tests."""

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest
from tests.sandbox.conftest import opener, scratch, workspace

from ringfence.sandbox.docker.image.recipe import reference

__all__ = ["opener", "scratch", "workspace"]


@pytest.fixture(scope="session", autouse=True)
def node() -> None:
    """The node that runs; skips where none does."""
    if not os.environ.get("KUBERNETES_STATE"):
        pytest.skip("no node runs: `make test-kubernetes` starts one (KUBERNETES_STATE)")


@pytest.fixture(scope="session")
def images() -> Callable[[str], str | None]:
    """The image that the node has."""
    return lambda _backend: reference("base")


@pytest.fixture(autouse=True)
def kubeconfig(node: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The administrator's kubeconfig."""
    monkeypatch.setenv("KUBECONFIG", f"{os.environ['KUBERNETES_STATE']}/kubeconfig")


@pytest.fixture
def open_namespace() -> Iterator[str]:
    """A namespace in which the node ignores policies, as many clusters do."""
    name = f"open-{uuid.uuid4().hex[:8]}"
    subprocess.run(["kubectl", "create", "namespace", name], check=True, capture_output=True)
    yield name
    command = ["kubectl", "delete", "namespace", name, "--wait=false"]
    subprocess.run(command, check=True, capture_output=True)
