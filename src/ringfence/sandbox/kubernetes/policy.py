"""The NetworkPolicy that closes the network of all sandboxes in a namespace, and policies of others that open it.

Policies add up: one that selects a sandbox's pod and allows something opens it for that, whatever the own one denies.
Policies of a network plugin's own kinds, and those of a whole cluster, are not looked at.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError, shown
from ringfence.sandbox.kubernetes.manifest import MANAGED_BY

POLICY_NAME = "ringfence-sandboxes"
GROUP = "networking.k8s.io"
_MOST_NAMES = 10


def _path(cluster: Cluster) -> str:
    return cluster.path("networkpolicies", group=f"apis/{GROUP}/v1")


def make_policy() -> dict[str, Any]:
    """The NetworkPolicy of a namespace: no connection to or from any sandbox in it."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY_NAME, "labels": MANAGED_BY},
        "spec": {"podSelector": {"matchLabels": MANAGED_BY}, "policyTypes": ["Ingress", "Egress"]},
    }


def policy_fault(found: Mapping[str, Any]) -> str | None:
    """What a policy of that name allows or leaves out; None if it denies everything."""
    spec = found.get("spec") or {}
    if spec.get("podSelector") != {"matchLabels": MANAGED_BY}:
        return "it selects other pods"
    if set(spec.get("policyTypes") or ()) != {"Ingress", "Egress"}:
        return f"it is for {spec.get('policyTypes')!r} only"
    if spec.get("ingress") or spec.get("egress"):
        return "it allows connections"
    return None


async def own_policy(cluster: Cluster) -> Mapping[str, Any] | None:
    """The policy of sandboxes, as it is in the namespace; None if it is not there.

    Raises:
        ClusterError: The cluster refuses, or cannot be reached.
        AuthenticationFailed: This user may not list policies.
    """
    return _find_own(await list_policies(cluster))


async def ensure_policy(cluster: Cluster, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Make the policy that denies all connections of sandboxes, unless it is there; return what `find_openings` does.

    Raises:
        SandboxStartFailed: One of that name is there, and allows something.
        ClusterError, AuthenticationFailed: As `own_policy`.
    """
    policies = await list_policies(cluster)
    own = _find_own(policies)
    if own is None:
        own = make_policy()
        policies = [*policies, own]
        try:
            await cluster.call("create the network policy", "POST", _path(cluster), body=own)
        except ClusterError as exc:
            if exc.reason != "AlreadyExists":
                raise
    fault = policy_fault(own)
    if fault is not None:
        raise SandboxStartFailed(
            f"the NetworkPolicy {POLICY_NAME!r} in namespace {cluster.namespace!r} does not deny all connections: "
            f"{fault}; delete it (`kubectl -n {cluster.namespace} delete networkpolicy {POLICY_NAME}`), and it is made "
            "anew"
        )
    return find_openings(policies, labels)


def find_openings(policies: list[dict[str, Any]], labels: Mapping[str, str]) -> tuple[str, ...]:
    """Describe those policies that open a pod with these labels, ten at most."""
    return tuple(islice(openings(policies, labels), _MOST_NAMES))


def _find_own(policies: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((one for one in policies if one["metadata"]["name"] == POLICY_NAME), None)


async def list_policies(cluster: Cluster) -> list[dict[str, Any]]:
    """The policies of the namespace.

    Raises:
        ClusterError, AuthenticationFailed: As `own_policy`.
    """
    found = await cluster.call("list the network policies", "GET", _path(cluster))
    return found.get("items") or []


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
    return all(same) and all(_matches(one, labels) for one in selector.get("matchExpressions") or ())


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
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
