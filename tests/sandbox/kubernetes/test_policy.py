"""The policy of sandboxes denies all connections, and what weakens it, or opens a pod beside it, is found."""

from typing import Any

import pytest
from tests.sandbox.kubernetes.api_server import ApiServer
from tests.sandbox.kubernetes.test_manifest import ASKED

from ringfence.sandbox.kubernetes.cluster import open_cluster
from ringfence.sandbox.kubernetes.policy import (
    find_openings,
    list_policies,
    make_policy,
    openings,
    policy_fault,
)

LABELS = ASKED["metadata"]["labels"]
OPEN: dict[str, Any] = {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]}
_MANAGER = "app.kubernetes.io/managed-by"


def policy(**spec: Any) -> dict[str, Any]:
    """A policy of somebody else."""
    return {"metadata": {"name": "theirs"}, "spec": {**OPEN, **spec}}


def found(*policies: dict[str, Any]) -> list[str]:
    """What opens a sandbox beside its own policy."""
    return list(openings([make_policy(), *policies], LABELS))


def selector(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A selector of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_policy_denies_everything() -> None:
    """The policy selects all sandboxes, for both directions, and has no rule that allows anything."""
    policy = make_policy()
    assert policy_fault(policy) is None
    selected = policy["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= LABELS.items()
    assert not {"ingress", "egress"} & policy["spec"].keys()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"podSelector": {"matchLabels": {"team": "b"}}}, "selects other pods"),
        (
            {
                "podSelector": {
                    **make_policy()["spec"]["podSelector"],
                    "matchExpressions": [{"key": "a"}],
                }
            },
            "selects other pods",
        ),
        ({"policyTypes": ["Ingress"]}, "only"),
        ({"policyTypes": None}, "only"),
        ({"egress": [{}]}, "allows"),
        ({"ingress": [{"from": []}]}, "allows"),
    ],
)
def test_a_weaker_policy_is_found(change: dict[str, Any], said: str) -> None:
    """A policy of the same name that selects other pods, or allows something, is found."""
    policy = make_policy()
    policy["spec"] |= change
    assert said in str(policy_fault(policy))


@pytest.mark.parametrize(
    "selected",
    [
        pytest.param({}, id="all pods"),
        pytest.param(None, id="all pods, not written"),
        pytest.param({"matchLabels": {"team": "a"}}, id="a label of the user's"),
        pytest.param(selector("team", "In", "a", "b"), id="one of"),
        pytest.param(selector("team", "NotIn", "c"), id="none of"),
        pytest.param(selector("absent", "NotIn", "c"), id="none of, without the label"),
        pytest.param(selector("team", "Exists"), id="a label that it has"),
        pytest.param(selector("absent", "DoesNotExist"), id="a label that it lacks"),
        pytest.param(selector("team", "Unheard"), id="an operator of a later version"),
    ],
)
def test_a_policy_that_selects_sandboxes_is_found(selected: Any) -> None:
    """However it selects them."""
    assert found(policy(podSelector=selected)) == ["'theirs' selects them and allows egress"]


@pytest.mark.parametrize(
    "selected",
    [
        pytest.param({"matchLabels": {"team": "b"}}, id="another value"),
        pytest.param({"matchLabels": {"team": "a", "absent": ""}}, id="a label that it lacks"),
        pytest.param(selector("team", "In", "b"), id="one of others"),
        pytest.param(selector("absent", "In", "b"), id="one of, without the label"),
        pytest.param(selector(_MANAGER, "NotIn", "ringfence"), id="excluded"),
        pytest.param(selector("absent", "Exists"), id="has it not"),
        pytest.param(selector("team", "DoesNotExist"), id="has it"),
    ],
)
def test_a_policy_of_other_pods_is_none(selected: Any) -> None:
    """Only policies that select a sandbox open it."""
    assert found(policy(podSelector=selected)) == []


def test_a_policy_without_rules_is_none() -> None:
    """One that denies may select what it likes; one that allows incoming connections is named, too."""
    assert found(policy(egress=None), policy(egress=[])) == []
    assert found(policy(egress=None, ingress=[{}])) == ["'theirs' selects them and allows ingress"]


def test_the_own_policy_must_hold() -> None:
    """One that is gone, that was changed, or that does not select the pod any more, is found."""
    assert list(openings([], LABELS)) == ["'ringfence-sandboxes' is not there any more"]
    changed = make_policy()
    changed["spec"]["egress"] = [{}]
    assert list(openings([changed], LABELS)) == ["'ringfence-sandboxes': it allows connections"]
    freed = {**LABELS, _MANAGER: "x"}
    assert "does not select the pod" in " ".join(openings([make_policy()], freed))


async def test_names_are_shown_bounded(api_server: ApiServer) -> None:
    """A cluster's names cannot fill or spoil a terminal."""
    theirs = [{**policy(), "metadata": {"name": "\x1b[2J" + "n" * 5000}} for _ in range(1000)]
    path = "/apis/networking.k8s.io/v1/namespaces/agents/networkpolicies"
    api_server.answers["GET", path] = (200, {"items": [make_policy(), *theirs]})
    async with await open_cluster() as cluster:
        names = find_openings(await list_policies(cluster), LABELS)
    text = "; ".join(names)
    assert text.isprintable()
    assert len(text) < 10_000
