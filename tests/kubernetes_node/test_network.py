"""The network of pods on a real node: one that enforces policies, and one that ignores them."""

import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest

from ringfence.config.kubernetes import UNENFORCED, KubernetesPods
from ringfence.errors import SandboxStartFailed
from ringfence.testing.conformance import OpenSandbox

pytestmark = [pytest.mark.kubernetes_node, pytest.mark.timeout(400)]
CONNECT = (
    "import os, socket; "
    "socket.create_connection((os.environ['KUBERNETES_SERVICE_HOST'], 443), 5).close(); print('open')"
)


async def test_a_network_that_is_open_is_refused(open_namespace: str, opener: Callable[[str], OpenSandbox]):
    """A sandbox does not start where something answers, although the cluster took its policy; the message names it."""
    where = KubernetesPods(namespace=open_namespace)
    with pytest.raises(SandboxStartFailed, match="is not closed") as error:
        async with opener("kubernetes")(kubernetes=where):
            pass
    assert "API server" in str(error.value)


async def test_an_open_network_can_be_accepted(open_namespace: str, opener: Callable[[str], OpenSandbox]):
    """Who accepts an open network has a sandbox, whose notes name what can be reached."""
    where = KubernetesPods(namespace=open_namespace)
    accepted = {"network": UNENFORCED, "unsafe": ("network",)}
    async with opener("kubernetes")(kubernetes=where, **accepted) as sandbox:
        ran = await sandbox.run(["echo", "there"])
        notes = " ".join(sandbox.notes)
    assert ran.stdout.strip() == "there"
    assert "API server" in notes


@pytest.fixture
def other_pod(images: Callable[[str], str | None]) -> Iterator[str]:
    """A pod that runs, and is no sandbox."""
    name = f"other-{uuid.uuid4().hex[:8]}"
    _kubectl("run", name, f"--image={images('kubernetes')}", "--command", "--", "sleep", "300")
    _kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    yield name
    _kubectl("delete", "pod", name, "--grace-period=1", "--wait=false")


def test_the_policy_of_sandboxes_is_theirs_alone(other_pod: str):
    """Other pods in the namespace of sandboxes keep their network."""
    assert _kubectl("exec", other_pod, "--", "python3", "-c", CONNECT).strip() == "open"


def _kubectl(*words: str) -> str:
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
