"""Finds what opens the network of a pod that runs: policies of others, and changes of the pod itself.

Policies add up: one that selects a sandbox's pod and allows something opens it for that, whatever the own one denies.
Policies of a network plugin's own kinds, and those of a whole cluster, are not looked at.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ringfence.config.kubernetes import UNENFORCED
from ringfence.errors import InfrastructureFault
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import shown
from ringfence.sandbox.kubernetes.manifest import MANAGED_BY, POLICY_NAME, policy_fault
from ringfence.sandbox.spec import SandboxSpec

_PATH, _GROUP = "networkpolicies", "apis/networking.k8s.io/v1"
_MOST_NAMES = 10


async def find_openings(cluster: Cluster, labels: Mapping[str, str]) -> tuple[str, ...]:
    """List the policies of the namespace; describe those that open a pod with these labels, ten at most.

    Raises:
        ClusterError: The cluster refuses, or cannot be reached.
        AuthenticationFailed: This user may not list policies.
    """
    found = await cluster.call("list the network policies", "GET", cluster.path(_PATH, group=_GROUP))
    return tuple(openings(found.get("items") or (), labels))[:_MOST_NAMES]


def openings(policies: Any, labels: Mapping[str, str]) -> Iterator[str]:
    """Describe what opens a pod with these labels, although the policy of sandboxes denies all connections."""
    is_there = False
    for policy in policies:
        name, spec = str(policy["metadata"]["name"]), policy.get("spec") or {}
        if name == POLICY_NAME:
            is_there = True
            if fault := policy_fault(policy):
                yield f"{name!r}: {fault}"
        elif (spec.get("ingress") or spec.get("egress")) and selects(spec.get("podSelector") or {}, labels):
            ways = [way for way in ("ingress", "egress") if spec.get(way)]
            yield f"{shown(name)!r} selects them and allows {' and '.join(ways)}"
    if not is_there:
        yield f"{POLICY_NAME!r} is not there any more"
    if any(labels.get(key) != value for key, value in MANAGED_BY.items()):
        yield f"{POLICY_NAME!r} does not select the pod, whose labels were changed"


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects an object with these labels; what is not known to exclude it selects it."""
    same = (labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return all(same) and all(_fits(one, labels) for one in selector.get("matchExpressions") or ())


def _fits(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key"), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(str(key)) in values
        case "NotIn":
            return labels.get(str(key)) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return True


def changes_since_made(pod: Mapping[str, Any], image: str) -> Iterator[str]:
    """Describe what was changed in a pod that may be changed after it was made, and is not to be."""
    spec = pod["spec"]
    for one in spec.get("ephemeralContainers") or ():
        yield f"container {shown(str(one.get('name')))!r} was added"
    for one in spec.get("containers") or ():
        if one.get("image") != image:
            yield f"the image of container {shown(str(one.get('name')))!r} is {shown(str(one.get('image')))!r}"


async def check_unchanged(cluster: Cluster, name: str, spec: SandboxSpec) -> None:
    """Refuse a pod that was changed, or whose network was opened, while it waited for a run.

    Raises:
        InfrastructureFault: It was.
        ClusterError: The cluster refuses, or cannot be reached.
    """
    pod = await cluster.call("look up the pod", "GET", cluster.path("pods", name))
    changes = list(changes_since_made(pod, str(spec.image)))
    if spec.network != UNENFORCED:
        changes += await find_openings(cluster, pod["metadata"].get("labels") or {})
    if changes:
        raise InfrastructureFault(f"pod {name!r} was changed while it waited: {'; '.join(changes)}")
