"""Sandboxes as pods, beside bare pods and `kubectl exec`, on the node that KUBECONFIG names.

scripts/kubernetes.sh install node && scripts/kubernetes.sh up node && scripts/kubernetes.sh image IMAGE
KUBECONFIG=/tmp/ringfence-kubernetes/kubeconfig python -m benchmarks kubernetes
"""

import io
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from benchmarks.claim import Row, p50_p99
from benchmarks.pool import await_ready, prepared, small_project, state_of_its_own
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.base import Launch
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.sandbox.kubernetes.backend import KubernetesBackend
from ringfence.sandbox.kubernetes.cluster import Cluster, open_cluster
from ringfence.sandbox.kubernetes.failure import container_status, is_running
from ringfence.sandbox.kubernetes.manifest import pod_name
from ringfence.sandbox.kubernetes.pod import await_pod
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.protocol.loader import guest_arguments
from ringfence.sandbox.tar.pack import pack_workspace
from ringfence.sandbox.tar.stream import Bounds

_STARTS, _EXECS, _PEERS, _UPLOADS, _CROWD = 8, 300, 20, 3, 50
_UPLOAD_MB = 100
_FILES = 20
_REST_S = 3.0
"""Until the node has made and removed the pods before."""
_GONE_S = 180.0
_IMAGE = reference("base")


async def measure_if_there() -> list[Row]:
    """All rows, where KUBECONFIG names a cluster; else none."""
    if not os.environ.get("KUBECONFIG"):
        print("kubernetes: KUBECONFIG names no cluster")
        return []
    starts = await _starts()
    return [*starts, await _warm_starts(), await _commands(), await _upload(), await _crowd()]


def _spec(**changes: object) -> SandboxSpec:
    return SandboxSpec(**{"backend": "kubernetes", "image": _IMAGE, "soft_limits": True, **changes})


@asynccontextmanager
async def _bare_pod(cluster: Cluster) -> AsyncIterator[Mapping[str, Any]]:
    """A pod of one container that waits, once it is ready."""
    name = f"bare-{uuid4().hex[:8]}"
    container = {"name": "main", "image": _IMAGE, "command": ["sleep", "600"], "imagePullPolicy": "Never"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await cluster.call("create a pod", "POST", cluster.path("pods"), body=body)
    try:
        yield await await_pod(cluster, name, lambda pod: is_running(pod, "main"), 60.0)
    finally:
        await cluster.call("delete a pod", "DELETE", cluster.path("pods", name))


async def _starts() -> list[Row]:
    """Pods requested to their first result, by digest and by tag, and bare pods requested to their being ready."""
    by_digest, by_tag, bare = [], [], []
    async with await open_cluster() as cluster:
        async with _bare_pod(cluster) as pod:
            digest = str(container_status(pod, "main")["imageID"])
        assert "@" in digest, "give the node the image by `scripts/kubernetes.sh image`"
        for _ in range(_STARTS):
            began = time.perf_counter()
            async with _bare_pod(cluster):
                bare.append((time.perf_counter() - began) * 1000)
            by_digest.append(await _start(image=digest))
            by_tag.append(await _start())
    limit = 1.5 * statistics.median(bare)
    beside = f"bare pod ready: {p50_p99(bare, digits=0)}"
    return [
        Row(
            "a pod requested to its first result, image named by digest",
            "≤ 1.5x a bare pod's Ready",
            p50_p99(by_digest, digits=0),
            beside,
            statistics.median(by_digest) <= limit,
        ),
        Row(
            "the same, image named by tag",
            "none",
            p50_p99(by_tag, digits=0),
            "it waits for the node's report of the digest, for the record",
            True,
        ),
    ]


async def _start(**changes: object) -> float:
    """The milliseconds from the request of a pod to its first result."""
    began = time.perf_counter()
    async with Sandbox.open(_spec(**changes)) as sandbox:
        assert (await sandbox.run(["true"])).ok
        return (time.perf_counter() - began) * 1000


async def _warm_starts() -> Row:
    """A pod of the pool requested to its first result, with the upload of a small project."""
    warm = []
    with state_of_its_own() as folder:
        workspace = small_project(folder / "workspace", files=_FILES)
        pool = Pool(folder / "state" / "pool", PoolSize(1, 600.0))
        for _ in range(_STARTS):
            run_dir, placement = await prepared(
                workspace, folder / "state", unseen="a pod sees no host files"
            )
            spec = _spec(workspace=workspace, mode="clone")
            await pool.refill(spec, placement, run_dir)
            await await_ready(pool)
            await anyio.sleep(_REST_S)
            began = time.perf_counter()
            async with pool.opened(spec, placement, run_dir, sandbox_id=uuid4().hex[:12]) as sandbox:
                assert (await sandbox.run(["true"])).ok
                warm.append((time.perf_counter() - began) * 1000)
            await pool.drain()
        assert pool.counts().hits == _STARTS, pool.counts()
    return Row(
        "a warm pod requested to its first result",
        "p50 ≤ 50 ms",
        p50_p99(warm),
        f"with the upload of {_FILES} files and their history",
        statistics.median(warm) <= 50,
    )


async def _commands() -> Row:
    """`true` in an open sandbox, and by `kubectl exec` in a bare pod, in turn."""
    ours, peers = [], []
    async with await open_cluster() as cluster, _bare_pod(cluster) as bare, Sandbox.open(_spec()) as sandbox:
        for number in range(_EXECS):
            began = time.perf_counter()
            assert (await sandbox.run(["true"])).ok
            ours.append((time.perf_counter() - began) * 1000)
            if number % (_EXECS // _PEERS) == 0:
                began = time.perf_counter()
                await anyio.run_process(["kubectl", "exec", bare["metadata"]["name"], "--", "true"])
                peers.append((time.perf_counter() - began) * 1000)
    return Row(
        "a command in an open pod",
        "p50 ≤ 5 ms",
        p50_p99(ours),
        f"`kubectl exec`: {p50_p99(peers, digits=0)}",
        statistics.median(ours) <= 5,
    )


async def _upload() -> Row:
    """100 MB in one file, to the volume of a pod."""
    speeds = []
    backend = KubernetesBackend()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "blob").write_bytes(os.urandom(_UPLOAD_MB * 1_000_000))
        packed = io.BytesIO()
        pack_workspace(Path(folder), packed.write, uid=1000, gid=1000, bounds=Bounds(1 << 40, 1000))
        for _ in range(_UPLOADS):
            placement = Placement(1000, 1000, Path("/work"), Path(folder), upload="all")
            launch = Launch(uuid4().hex[:12], _spec(), placement, guest_arguments())
            volume = await backend.make_volume(launch)
            try:
                began = time.perf_counter()
                await volume.put(packed)
                speeds.append(_UPLOAD_MB / (time.perf_counter() - began))
            finally:
                await volume.remove()
    return Row(
        f"upload of {_UPLOAD_MB} MB",
        "≥ 50 MB/s",
        f"median {statistics.median(speeds):.0f} MB/s",
        "",
        statistics.median(speeds) >= 50,
    )


async def _crowd() -> Row:
    """Fifty pods at once: started, used and removed; none is left."""
    done: list[str] = []

    async def use() -> None:
        async with Sandbox.open(_spec(memory="256m", cpus=0.2)) as sandbox:
            assert (await sandbox.run(["true"])).ok
            done.append(sandbox.id)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(_CROWD):
            tasks.start_soon(use)
    took = time.perf_counter() - began
    left, ended = _CROWD, time.perf_counter()
    async with await open_cluster() as cluster:
        with anyio.move_on_after(_GONE_S):  # nodes confirm the end of a pod later than that of its processes
            while left := await _pods_left(cluster, done):  # noqa: ASYNC110 -- nothing reports it
                await anyio.sleep(1)
    gone_s = time.perf_counter() - ended
    return Row(
        f"{_CROWD} pods at once: started, used, removed",
        "none left",
        f"{len(done)} used in {took:.1f} s, {left} left {gone_s:.0f} s later",
        "",
        len(done) == _CROWD and left == 0,
    )


async def _pods_left(cluster: Cluster, ids: list[str]) -> int:
    """How many pods of these sandboxes there still are."""
    found = await cluster.call("list pods", "GET", cluster.path("pods"))
    names = {pod["metadata"]["name"] for pod in found["items"]}
    return sum(pod_name(each) in names for each in ids)
