"""What a real API server says of deploy/kubernetes: it takes every object, and grants what the Role names only."""

from typing import Any

import pytest
from tests.deploy.rendered import FOLDERS, objects
from tests.kubernetes.control_plane import Namespace

from ringfence.sandbox.kubernetes.access import NEEDED, OPTIONAL

PLURALS = {"NetworkPolicy": "networkpolicies"}
NETWORKING = "networking.k8s.io"
BEFORE_1_21 = {"PodDisruptionBudget": "policy/v1beta1"}
"""The version of an object that an older server knows, with the same fields."""


def _placed(one: dict[str, Any], namespace: Namespace) -> dict[str, Any]:
    """An object in the test's namespace."""
    moved = {**one, "apiVersion": BEFORE_1_21.get(one["kind"], one["apiVersion"])}
    moved["metadata"] = {**one["metadata"], "namespace": namespace.name}
    if "subjects" in one:
        moved["subjects"] = [{**subject, "namespace": namespace.name} for subject in one["subjects"]]
    return moved


def _create(namespace: Namespace, one: dict[str, Any], query: str = "") -> Any:
    placed = _placed(one, namespace)
    group = placed["apiVersion"] if "/" not in placed["apiVersion"] else f"apis/{placed['apiVersion']}"
    plural = PLURALS.get(one["kind"], f"{one['kind'].lower()}s")
    path = namespace.path(plural, group="api/v1" if group == "v1" else group)
    return namespace.request("POST", path + query, placed)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_is_accepted(namespace: Namespace, folder: str):
    """The API server validates and admits each object, and stores what the manifest says."""
    for one in objects(folder):
        if one["kind"] == "Namespace":
            placed = {**one, "metadata": {**one["metadata"], "name": f"{namespace.name}-new"}}
            made = namespace.request("POST", "/api/v1/namespaces?dryRun=All", placed)
        else:
            made = _create(namespace, one, "?dryRun=All")
        assert made["kind"] == one["kind"]
        assert made["metadata"].get("labels", {}).items() >= one["metadata"].get("labels", {}).items()


def _may(namespace: Namespace, account: str, verb: str, resource: str, *, group: str = "") -> bool:
    """Whether an account of the fleet may do something, by the server's own judgement."""
    kind, _, part = resource.partition("/")
    asked = {"namespace": namespace.name, "verb": verb, "group": group, "resource": kind, "subresource": part}
    user = f"system:serviceaccount:{namespace.name}:ringfence-{account}"
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    answer = namespace.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_the_role_grants_what_sandboxes_need_and_nothing_else(namespace: Namespace):
    """A worker makes, follows and removes pods in its namespace, and reads no Secret; the daemon may do nothing."""
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        for one in objects(kind=kind):
            _create(namespace, one)
    needed = [(one.verb, one.resource, one.group) for one in (*NEEDED, *OPTIONAL)]

    def allowed(account: str, asked: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        return [one for one in asked if _may(namespace, account, one[0], one[1], group=one[2])]

    found: list[tuple[str, str, str]] = []
    for _ in range(200):  # the server learns of roles by watches
        found = allowed("worker", needed)
        if found == needed:
            break
    assert found == needed
    refused = [
        ("get", "secrets", ""),
        ("list", "secrets", ""),
        ("get", "pods/log", ""),
        ("create", "serviceaccounts/token", ""),
        ("create", "deployments", "apps"),
        ("create", "rolebindings", "rbac.authorization.k8s.io"),
        ("update", "networkpolicies", NETWORKING),
        ("delete", "networkpolicies", NETWORKING),
    ]
    assert allowed("worker", refused) == []
    assert allowed("daemon", [*needed, *refused]) == []
