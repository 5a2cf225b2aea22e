"""A server that answers as a cluster does, and the kubeconfig for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.kubernetes.api_server import ApiServer, kubeconfig, running


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A server, to which `KUBECONFIG` leads."""
    with running() as server:
        file = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("KUBECONFIG", str(file))
        yield server
