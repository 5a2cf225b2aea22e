"""A namespace on a real API server, for tests of what the cluster's interface promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.control_plane import ControlPlane, Namespace, control_plane


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """The API server of this test session; skips where it is not installed."""
    with control_plane() as running:
        yield running


@pytest.fixture
def namespace(api_server: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """A namespace of the test's own; `KUBECONFIG` is its administrator's."""
    made = api_server.make_namespace(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
    return made
