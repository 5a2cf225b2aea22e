"""Looks from inside a pod, before anything of the agent's runs, whether its network is closed.

A NetworkPolicy is only a request: a cluster whose network plugin does not enforce policies accepts it and does nothing.
"""

from collections.abc import Mapping

import anyio

from ringfence.errors import InfrastructureFault, SandboxStartFailed
from ringfence.frozen import frozen
from ringfence.sandbox.kubernetes.cluster_error import shown
from ringfence.sandbox.kubernetes.files_container import FilesContainer, Target

_WAIT_S = 0.25
_TRIES, _PAUSE_S = 4, 0.7
"""Plugins may apply a policy a moment after the pod has started."""
_PROBE_S = 20.0
_TARGETS: tuple[Target, ...] = (
    ("the API server", "API SERVER", 0, "tcp"),
    ("a name server", "NAME SERVER", 53, "udp"),
    ("a name server", "NAME SERVER", 53, "tcp"),
    ("the gateway", "GATEWAY", 53, "udp"),
    *(("the gateway", "GATEWAY", port, "tcp") for port in (53, 22, 10250)),
    ("an outside address", "1.1.1.1", 443, "tcp"),
    ("an outside address", "8.8.8.8", 53, "tcp"),
    ("metadata of the cloud", "169.254.169.254", 80, "tcp"),
    ("metadata of the cloud", "fd00:ec2::254", 80, "tcp"),
)


@frozen
class Inspection:
    """What was found in a pod."""

    answered: tuple[str, ...]
    """What can be reached: the API server, a node, metadata of a cloud, a name server, the Internet."""
    environment: Mapping[str, str]
    """The environment that the image gives to its programs."""


async def begin_inspection(files: FilesContainer, node: str) -> None:
    """Begin to look; the address of the pod's node may be empty."""
    targets = [*_TARGETS, *(("the node", node, port, "tcp") for port in (10250, 22) if node)]
    await files.begin_probe(targets, _WAIT_S)


async def end_inspection(files: FilesContainer, node: str) -> Inspection:
    """Look again and again, until nothing answers or it is certain that something does.

    Raises:
        SandboxStartFailed: The probe could not be run, did not end, or gave no answer.
    """
    for number in range(_TRIES):
        if number:
            await anyio.sleep(_PAUSE_S)
            await begin_inspection(files, node)
        found = await _found(files)
        if not found.answered:
            break
    return found


async def _found(files: FilesContainer) -> Inspection:
    doing = "look from inside whether the pod's network is closed"
    with anyio.move_on_after(_PROBE_S):
        try:
            found = await files.end_probe()
            environment = {str(name): str(value) for name, value in found["environment"].items()}
            return Inspection(tuple(shown(str(each)) for each in found["answered"]), environment)
        except InfrastructureFault as exc:
            raise SandboxStartFailed(f"could not {doing}: {exc}") from exc
        except (KeyError, TypeError, AttributeError) as exc:
            raise SandboxStartFailed(f"could not {doing}: its answer is none") from exc
    raise SandboxStartFailed(f"could not {doing} within {_PROBE_S:g} s")
