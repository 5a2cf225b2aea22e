"""Looks from inside a pod, before anything of the agent's runs, whether its network is closed.

A NetworkPolicy is only a request: a cluster whose network plugin does not enforce policies accepts it and does nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

import anyio

from ringfence.errors import SandboxStartFailed
from ringfence.frozen import frozen
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import shown
from ringfence.sandbox.kubernetes.inside import program
from ringfence.sandbox.kubernetes.manifest import FILES, INTERPRETER

_WAIT_S = 0.25
_TRIES, _PAUSE_S = 4, 0.7
"""Plugins may apply a policy a moment after the pod has started."""
_PROBE_S = 20.0
_ANSWER_BYTES = 256 * 1024
_TARGETS = (
    ("an outside address", "1.1.1.1", 443, "tcp"),
    ("an outside address", "8.8.8.8", 53, "tcp"),
    ("metadata of the cloud", "169.254.169.254", 80, "tcp"),
    ("metadata of the cloud", "fd00:ec2::254", 80, "tcp"),
)


@frozen
class Inspection:
    """What was found in a pod."""

    answered: tuple[str, ...]
    """What can be reached: the API server, the node, metadata of a cloud, a name server, the Internet."""
    environment: Mapping[str, str]
    """The environment that the image gives to its programs."""
    openings: tuple[str, ...] = ()
    """Policies that open the pod, and were accepted."""


async def inspect(cluster: Cluster, pod: Mapping[str, Any]) -> Inspection:
    """Run the probe in a pod, until nothing answers or it is certain that something does.

    Raises:
        ClusterError: It could not be run.
        SandboxStartFailed: It did not end, or gave no answer.
    """
    node = str((pod.get("status") or {}).get("hostIP") or "")
    targets = [*_TARGETS, *(("the node", node, port, "tcp") for port in (10250, 22) if node)]
    for number in range(_TRIES):
        await anyio.sleep(_PAUSE_S if number else 0)
        found = await _probe(cluster, str(pod["metadata"]["name"]), targets)
        if not found.answered:
            break
    return found


async def _probe(cluster: Cluster, pod: str, targets: list[tuple[str, str, int, str]]) -> Inspection:
    doing = "look from inside whether the pod's network is closed"
    argv = (*INTERPRETER, program("probe"), json.dumps(targets), str(_WAIT_S))
    with anyio.move_on_after(_PROBE_S):
        async with await cluster.open_stream(doing, pod, FILES, argv=argv) as stream:
            output = await stream.receive_all(_ANSWER_BYTES)
        try:
            found = json.loads(output)
            environment = {str(name): str(value) for name, value in found["environment"].items()}
            return Inspection(tuple(shown(str(each)) for each in found["answered"]), environment)
        except (ValueError, KeyError, TypeError, AttributeError):
            said = stream.last_words or shown(str(stream.status))
            raise SandboxStartFailed(f"could not {doing}: {said}") from None
    raise SandboxStartFailed(f"could not {doing} within {_PROBE_S:g} s")
