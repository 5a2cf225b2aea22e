"""Why a sandbox in a pod has ended, where its node has not reported the end of the guest."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.sandbox.kubernetes.api_server import ApiServer

from ringfence.sandbox.base import Facts
from ringfence.sandbox.kubernetes import fence as module
from ringfence.sandbox.kubernetes.cluster import open_cluster
from ringfence.sandbox.kubernetes.fence import PodFence
from ringfence.sandbox.kubernetes.pod import SandboxPod
from ringfence.sandbox.kubernetes.pod_stream import PodStream, StreamEnd

PATH = "/api/v1/namespaces/agents/pods/one"
CLOSED, BROKEN = StreamEnd("closed", is_broken=False), StreamEnd("the connection broke", is_broken=True)


@pytest.mark.parametrize(
    ("metadata", "stream_end", "reason", "words"),
    [
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            CLOSED,
            "killed",
            "deleted from outside",
            id="deleted",
        ),
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            BROKEN,
            "killed",
            "deleted from outside",
            id="deleted, broken",
        ),
        pytest.param({}, BROKEN, "engine", "the connection broke; a stream is not opened again", id="broken"),
        pytest.param({}, CLOSED, "protocol", "closed the stream and did not go", id="closed"),
    ],
)
async def test_an_end_without_a_report_has_its_reason(
    api_server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    metadata: dict[str, Any],
    stream_end: StreamEnd,
    reason: str,
    words: str,
) -> None:
    """A pod that is being deleted says so long before its node reports the end of the guest."""
    monkeypatch.setattr(module, "_REPORT_S", 0.3)
    pod = {
        "metadata": {"name": "one", "uid": "1", "resourceVersion": "1", **metadata},
        "status": {"phase": "Running"},
    }
    api_server.answers["GET", PATH] = (200, pod)
    api_server.answers["GET", PATH.rpartition("/")[0]] = (200, b"")  # a watch that reports no change
    stream = cast("PodStream", SimpleNamespace(end=stream_end, last_words="bye"))
    async with await open_cluster() as cluster:
        place = cast("SandboxPod", SimpleNamespace(cluster=cluster, name="one"))
        end = await PodFence(cast("Facts", None), stream, place, is_owner=False).wait()
    assert (end.reason, end.stderr) == (reason, "bye")
    assert words in end.detail
