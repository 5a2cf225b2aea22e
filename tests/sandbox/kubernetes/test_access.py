"""Which permissions a user lacks for sandboxes on a cluster, and the role that grants them."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.sandbox.kubernetes.api_server import ApiServer, status

from ringfence.cli import main
from ringfence.sandbox.kubernetes.access import NEEDED, OPTIONAL, examine_access, role
from ringfence.sandbox.kubernetes.cluster import open_cluster
from ringfence.sandbox.kubernetes.policy import make_policy

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_POLICIES = "/apis/networking.k8s.io/v1/namespaces/agents/networkpolicies"


def _grants(rules: list[dict[str, Any]]) -> Callable[[Any], tuple[int, Any]]:
    """Reviews access as RBAC does, by the rules of a role in namespace `agents`."""

    def review(document: Any) -> tuple[int, Any]:
        asked = document["spec"]["resourceAttributes"]
        name = asked["resource"] + (f"/{asked['subresource']}" if asked["subresource"] else "")
        is_allowed = asked["namespace"] == "agents" and any(
            asked["verb"] in rule["verbs"]
            and name in rule["resources"]
            and asked["group"] in rule["apiGroups"]
            for rule in rules
        )
        return 201, {**document, "status": {"allowed": is_allowed}}

    return review


def _rules(manifest: str) -> list[dict[str, Any]]:
    made, _ = YAML(typ="safe").load_all(manifest)
    rules: list[dict[str, Any]] = made["rules"]
    return rules


async def test_the_role_grants_what_is_needed(api_server: ApiServer) -> None:
    """And no verb besides; with it nothing is missing."""
    rules = _rules(role("agents"))
    api_server.answers["POST", _REVIEWS] = _grants(rules)
    api_server.answers["GET", _POLICIES] = (200, {"items": [make_policy()]})
    async with await open_cluster() as cluster:
        report = await examine_access(cluster)
    assert report.missing == ()
    assert "denies everything" in report.facts["network policy"]
    assert "v1.20.2" in report.facts["server"]
    assert "not granted, and not needed" not in report.facts
    granted = {(verb, name) for rule in rules for verb in rule["verbs"] for name in rule["resources"]}
    assert granted == {(one.verb, one.resource) for one in (*NEEDED, *OPTIONAL)}


@pytest.mark.parametrize("lacking", [*NEEDED, *OPTIONAL], ids=str)
async def test_each_missing_permission_is_named(api_server: ApiServer, lacking: Any) -> None:
    """One that is needed as missing, another as one that can be done without."""
    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != lacking.verb]}
        if lacking.resource in rule["resources"]
        else rule
        for rule in _rules(role("agents"))
    ]
    api_server.answers["POST", _REVIEWS] = _grants(rules)
    api_server.answers["GET", _POLICIES] = (200, {"items": []})
    async with await open_cluster() as cluster:
        report = await examine_access(cluster)
    assert report.missing == ((str(lacking),) if lacking in NEEDED else ())
    assert report.facts.get("not granted, and not needed") == (str(lacking) if lacking in OPTIONAL else None)
    assert report.facts["network policy"].startswith("none yet")


async def test_secrets_are_looked_up_without_their_contents(api_server: ApiServer) -> None:
    """One that is there, one that is not, and one that may not be looked up, which is not needed."""
    api_server.answers["POST", _REVIEWS] = _grants(_rules(role("agents")))
    secrets = "/api/v1/namespaces/agents/secrets"
    api_server.answers["GET", f"{secrets}/here"] = (200, {"kind": "PartialObjectMetadata"})
    forbidden = 'secrets "hidden" is forbidden: User "x" cannot get resource "secrets"'
    api_server.answers["GET", f"{secrets}/hidden"] = (403, status(403, "Forbidden", forbidden))
    async with await open_cluster() as cluster:
        report = await examine_access(cluster, ("here", "gone", "hidden"))
    assert report.facts["image pull secret here"] == "is there"
    assert report.facts["image pull secret gone"].startswith("NOT in namespace 'agents'")
    assert report.facts["image pull secret hidden"].startswith("not known")


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("system:serviceaccount:ci:bot", {"kind": "ServiceAccount", "namespace": "ci", "name": "bot"}),
        (
            'eve"\nkind: ClusterRole',
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": 'eve"\nkind: ClusterRole'},
        ),
        ("yes", {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "yes"}),
    ],
)
async def test_the_binding_names_this_user(api_server: ApiServer, name: str, subject: dict[str, str]) -> None:
    """Where the server says who that is, as data whatever the name is."""
    api_server.answers["POST", _REVIEWS] = _grants([])
    api_server.answers["POST", _WHO] = (201, {"status": {"userInfo": {"username": name}}})
    async with await open_cluster() as cluster:
        report = await examine_access(cluster)
    made, binding = YAML(typ="safe").load_all(report.manifest)
    assert binding["subjects"] == [subject]
    assert binding["roleRef"]["name"] == made["metadata"]["name"]
    assert made["metadata"]["namespace"] == binding["metadata"]["namespace"] == "agents"


def _doctor(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int | str | None, str]:
    monkeypatch.setattr("sys.argv", ["ringfence", "doctor", "--sandbox", "kubernetes", *options])
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, out.getvalue()


def test_doctor_names_what_is_missing(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with the role; programs find both in the JSON. The sandbox cannot be used: 125."""
    api_server.answers["POST", _REVIEWS] = _grants(_rules(role("agents"))[:1])
    code, out = _doctor(monkeypatch)
    assert code == 125
    assert "MISSING permission: create pods/exec" in out
    assert "MISSING permission: create pods\n" not in out
    assert "kind: RoleBinding" in out
    code, out = _doctor(monkeypatch, "--json")
    (backend,) = json.loads(out)["backends"]
    assert code == 125
    assert "create pods/exec" in backend["access"]["missing"]
    assert _rules(backend["access"]["manifest"]) == _rules(role("agents"))


def test_doctor_shows_the_role_on_request(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing is missing, only then."""
    api_server.answers["POST", _REVIEWS] = _grants(_rules(role("agents")))
    code, out = _doctor(monkeypatch)
    assert code == 0
    assert "RoleBinding" not in out
    code, out = _doctor(monkeypatch, "--show-role")
    assert code == 0
    assert "RoleBinding" in out
