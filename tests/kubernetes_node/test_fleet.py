"""A fleet of deploy/kubernetes on a real node: a daemon, two workers, and jobs in pods."""

import os
from collections.abc import Callable, Iterator

import pytest
from tests.kubernetes_node.node_fleet import SANDBOX, NodeFleet, node_fleet

pytestmark = [pytest.mark.kubernetes_node, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, images: Callable[[str], str | None]
) -> Iterator[NodeFleet]:
    """The fleet of these tests, with exactly the Role of the manifests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", f"{os.environ['KUBERNETES_STATE']}/kubeconfig")
        image = images("kubernetes")
        assert image is not None
        with node_fleet(tmp_path_factory.mktemp("fleet"), image) as running:
            yield running


def _attempts(job: dict[str, object]) -> list[tuple[str, str]]:
    return [(each["host"], each["state"]) for each in job["attempts"]]  # type: ignore[attr-defined]


def test_a_job_goes_on_at_another_worker(fleet: NodeFleet):
    """The job of a worker that is killed ends on the other one, with its check, and no sandbox is left."""
    job = fleet.trigger()
    sandbox, worker = fleet.working_sandbox()
    fleet.kubectl("delete", "pod", worker, "--grace-period=0", "--force")
    fleet.kubectl("wait", "--for=delete", f"pod/{sandbox}", "--timeout=120s")
    ended = fleet.ended(job)
    first, second = _attempts(ended)
    assert (ended["state"], first, second[1]) == ("succeeded", (worker, "interrupted"), "succeeded")
    assert second[0] != worker
    fleet.wait(lambda: fleet.pods(SANDBOX), lambda left: left == [])


def test_a_job_ends_on_the_worker_that_is_replaced(fleet: NodeFleet):
    """A worker that is deleted lets its job end in one attempt; the daemon reads its record, which verifies."""
    job = fleet.trigger()
    _, worker = fleet.working_sandbox()
    fleet.kubectl("delete", "pod", worker, "--wait=false")
    ended = fleet.ended(job)
    assert (ended["state"], _attempts(ended)) == ("succeeded", [(worker, "succeeded")])
    program = (
        "import json, sys; from ringfence.fleet.client import FleetClient; "
        f"print(json.dumps(FleetClient().get('jobs', '{job}', 'record')))"
    )
    python = ("deploy/ringfence-daemon", "-c", "daemon", "--", "/opt/ringfence/bin/python", "-c", program)
    record = fleet.wait(lambda: fleet.kubectl("exec", *python), lambda text: '"sealed"' in text)
    assert "not trusted" not in record
    fleet.wait(lambda: fleet.pods(SANDBOX), lambda left: left == [])


def test_the_image_holds_no_tools_to_build_with(fleet: NodeFleet):
    """The image runs as its own user, and has neither a compiler nor an installer of packages."""
    found = fleet.kubectl(
        "exec", "deploy/ringfence-worker", "-c", "worker", "--", "sh", "-c",
        "id -u; command -v gcc cc make pip pip3 uv || true; ringfence --version",
    )  # fmt: skip
    user, version = found.splitlines()
    assert (user, version.startswith("ringfence ")) == ("10001", True)
