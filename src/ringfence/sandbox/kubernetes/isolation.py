"""Finds out, from inside a pod and before anything of the agent's runs, whether the network is closed.

A NetworkPolicy is only a request: a cluster whose network plugin does not enforce policies accepts it and does nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

import anyio

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError, shown
from ringfence.sandbox.kubernetes.inside import program
from ringfence.sandbox.kubernetes.manifest import GUEST, INTERPRETER

_WAIT_S = 0.4
_TRIES, _PAUSE_S = 4, 0.7
"""Plugins may apply a policy a moment after the pod has started."""
_PROBE_S = 20.0
_ANSWER_BYTES = 4096
_OUTSIDE = (("1.1.1.1", 443), ("8.8.8.8", 53))
_METADATA = (("169.254.169.254", 80), ("fd00:ec2::254", 80))


async def answers(cluster: Cluster, pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what answers from inside a pod: the API server, its node, metadata of a cloud, name servers, the Internet.

    Args:
        cluster: The session.
        pod: The pod, whose guest runs and has been sent nothing.

    Raises:
        ClusterError: The probe could not be run.
        SandboxStartFailed: It did not end, or gave no answer.
    """
    targets = [("an outside address", host, port, "tcp") for host, port in _OUTSIDE]
    targets += [("metadata of the cloud", host, port, "tcp") for host, port in _METADATA]
    targets += [
        ("a name server", host, 53, kind) for host in await _name_servers(cluster) for kind in ("udp", "tcp")
    ]
    node = str((pod.get("status") or {}).get("hostIP") or "")
    targets += [("the node", node, port, "tcp") for port in (10250, 22)]
    found: tuple[str, ...] = ()
    for number in range(_TRIES):
        await anyio.sleep(_PAUSE_S if number else 0)
        found = await _probe(cluster, str(pod["metadata"]["name"]), targets)
        if not found:
            break
    return found


async def _probe(cluster: Cluster, pod: str, targets: list[tuple[str, str, int, str]]) -> tuple[str, ...]:
    doing = "find out whether the pod's network is closed"
    argv = (*INTERPRETER, program("probe"), json.dumps(targets), str(_WAIT_S))
    output = b""
    with anyio.move_on_after(_PROBE_S):
        async with await cluster.open_stream(doing, pod, GUEST, argv=argv) as stream:
            try:
                while len(output) < _ANSWER_BYTES:
                    output += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        try:
            return tuple(shown(str(each)) for each in json.loads(output))
        except ValueError:
            said = shown(stream.stderr.decode("utf-8", "replace") or str(stream.status))
            raise SandboxStartFailed(f"could not {doing}: {said}") from None
    raise SandboxStartFailed(f"could not {doing} within {_PROBE_S:g} s")


async def _name_servers(cluster: Cluster) -> list[str]:
    """The cluster's name servers, if this user may know them; they are often the tenth address of the services."""
    path = "/api/v1/namespaces/kube-system/services/kube-dns"
    try:
        found = await cluster.call("look up the name server", "GET", path)
    except Exception as exc:
        if isinstance(exc, ClusterError) and not exc.is_refusal:
            raise
        return ["10.96.0.10"]
    return [str(address) for address in found["spec"].get("clusterIPs") or [found["spec"]["clusterIP"]]]
