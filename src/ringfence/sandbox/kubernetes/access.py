"""The permissions that sandboxes need in their namespace: which of them this user lacks, and the role that grants them.

Asked of the cluster by `SelfSubjectAccessReview`, one for each permission, as `kubectl auth can-i` does.
"""

from contextlib import suppress

import anyio
import yaml  # type: ignore[import-untyped]  # its stubs are another package

from ringfence.errors import RingfenceError
from ringfence.frozen import frozen
from ringfence.sandbox.base import AccessReport
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError, shown
from ringfence.sandbox.kubernetes.policy import GROUP, POLICY_NAME, own_policy, policy_fault

_RBAC = "rbac.authorization.k8s.io"
_ROLE = "ringfence-sandboxes"
_PLACEHOLDER = "NAME of your user, or system:serviceaccount:NAMESPACE:NAME"
_ONE_LINE = 1 << 30
"""A width at which no line is folded."""
_REVIEWS_AT_ONCE = 8
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Asks for an object without its contents: those of a secret are none of our business."""


@frozen
class Permission:
    """One verb on one kind of object in the namespace."""

    verb: str
    resource: str
    """`pods`, or with its subresource `pods/exec`."""
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


# Streams by WebSocket begin with a GET, which servers before 1.35 take for the verb `get`, and later ones for `create`.
NEEDED = (
    *(Permission(verb, "pods") for verb in ("create", "get", "list", "watch", "delete")),
    *(Permission(verb, f"pods/{name}") for name in ("attach", "exec") for verb in ("get", "create")),
    *(Permission(verb, "networkpolicies", GROUP) for verb in ("list", "create")),
)
OPTIONAL = (Permission("list", "events"),)
"""What makes messages better: why a node does not start a pod."""


async def examine_access(cluster: Cluster, image_pull_secrets: tuple[str, ...] = ()) -> AccessReport:
    """Find out what this user may do, and the state of what sandboxes use.

    Raises:
        ClusterError: The cluster cannot be reached, or does not answer such questions.
        AuthenticationFailed: It does not accept the credentials.
    """
    version = await cluster.call("reach the cluster", "GET", "/version", timeout_s=10.0)
    allowed: dict[Permission, bool] = {}
    limiter = anyio.Semaphore(_REVIEWS_AT_ONCE)

    async def ask(permission: Permission) -> None:
        async with limiter:
            allowed[permission] = await _is_allowed(cluster, permission)

    first, *rest = (*NEEDED, *OPTIONAL)
    await ask(first)  # by itself: what is wrong with all of them is raised as it is
    async with anyio.create_task_group() as tasks:
        for permission in rest:
            tasks.start_soon(ask, permission)
    facts = {
        "server": f"Kubernetes {shown(str(version.get('gitVersion')))} at {cluster.server}",
        "context": cluster.context,
        "namespace": cluster.namespace,
        "network policy": await _policy(cluster),
    }
    if lacking := [str(one) for one in OPTIONAL if not allowed[one]]:
        facts["not granted, and not needed"] = ", ".join(lacking)
    for name in image_pull_secrets:
        facts[f"image pull secret {name}"] = await _secret(cluster, name)
    missing = tuple(str(one) for one in NEEDED if not allowed[one])
    return AccessReport(facts, missing, role(cluster.namespace, await _user_name(cluster)))


async def _is_allowed(cluster: Cluster, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "namespace": cluster.namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
    }
    group = "authorization.k8s.io/v1"
    review = {
        "apiVersion": group,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = f"/apis/{group}/selfsubjectaccessreviews"
    answer = await cluster.call(f"ask whether you may {permission}", "POST", path, body=review)
    return (answer.get("status") or {}).get("allowed") is True


async def _policy(cluster: Cluster) -> str:
    try:
        found = await own_policy(cluster)
    except RingfenceError as exc:
        return str(exc)
    if found is None:
        return "none yet; the first sandbox makes it"
    fault = policy_fault(found)
    return f"{POLICY_NAME} is refused: {fault}" if fault else f"{POLICY_NAME} denies everything"


async def _secret(cluster: Cluster, name: str) -> str:
    try:
        await cluster.call("look up the secret", "GET", cluster.path("secrets", name), accept=_METADATA_ONLY)
    except ClusterError as exc:
        return f"NOT in namespace {cluster.namespace!r}" if exc.is_absent else str(exc)
    except RingfenceError:
        return "not known, as you may not look it up, which is not needed"
    return "is there"


async def _user_name(cluster: Cluster) -> str | None:
    """The name of this user; None where the server cannot tell (before 1.28)."""
    group = "authentication.k8s.io/v1"
    review = {"apiVersion": group, "kind": "SelfSubjectReview"}
    with suppress(RingfenceError, KeyError, TypeError):
        answer = await cluster.call(
            "ask who you are", "POST", f"/apis/{group}/selfsubjectreviews", body=review
        )
        return str(answer["status"]["userInfo"]["username"])
    return None


def role(namespace: str, subject: str | None = None) -> str:
    """The least Role for sandboxes in a namespace and its RoleBinding, as YAML.

    Args:
        namespace: Where sandboxes are made.
        subject: The name of the user or service account; None leaves a place to fill in.
    """
    verbs: dict[tuple[str, str], list[str]] = {}
    for one in (*NEEDED, *OPTIONAL):
        verbs.setdefault((one.group, one.resource), []).append(one.verb)
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": granted}
        for (group, resource), granted in verbs.items()
    ]
    metadata = {"name": _ROLE, "namespace": namespace}
    role_ref = {"apiGroup": _RBAC, "kind": "Role", "name": _ROLE}
    subjects = [_subject_entry(subject or _PLACEHOLDER)]
    objects = (
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role_ref,
            "subjects": subjects,
        },
    )
    return str(yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=None, width=_ONE_LINE))


def _subject_entry(name: str) -> dict[str, str]:
    """The entry of a RoleBinding for a user, whose name says if it is a service account."""
    parts = name.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    return {"kind": "User", "apiGroup": _RBAC, "name": name}
