"""What of the engine's answers is passed on."""

import json
from typing import Any

import pytest

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.messages import (
    OWN_LABELS,
    is_visible,
    narrow_filters,
    short_info,
    visible_only,
    without_secrets,
)
from ringfence.egress.engine.routes import Rejected
from ringfence.sandbox.container import labels

ACCESS = EngineAccess(label="lab=shop")


def inspected(**host: Any) -> dict[str, Any]:
    """A container as the engine tells of it."""
    return {"Id": "1", "Config": {"Labels": {"lab": "shop"}, "Env": ["A=secret", "B"]}, "HostConfig": host}


@pytest.mark.parametrize(
    ("labels", "visible"),
    [
        ({"lab": "shop"}, True),
        ({"lab": "other"}, False),
        ({}, False),
        (None, False),
        ({"lab": "shop", "ringfence.sandbox": "x"}, False),
    ],
)
def test_visible(labels: dict[str, str] | None, visible: bool) -> None:
    """Only what has the label is seen, and never ringfence's own containers."""
    assert is_visible({"Labels": labels}, ACCESS) is visible
    assert is_visible({"Config": {"Labels": labels}}, ACCESS) is visible


def test_list_is_checked_again() -> None:
    """What the engine lists is looked at once more."""
    mine = {"Labels": {"lab": "shop"}}
    assert visible_only([mine, {"Labels": {}}, "nonsense", None], ACCESS) == [mine]


@pytest.mark.parametrize("given", ["", '{"label": ["a=b"]}', '{"label": {"a=b": true}, "name": ["x"]}'])
def test_filters_are_narrowed(given: str) -> None:
    """The label is added to whatever is asked for."""
    assert "lab=shop" in json.loads(narrow_filters(given, ACCESS))["label"]


@pytest.mark.parametrize(
    "given",
    [
        "[]",
        "1",
        "{",
        '{"label": 1}',
        '{"label": [1]}',
        '{"label": {"a": {}}, "x": "y"}',
        '{"since": ["other"]}',
        '{"before": ["x"]}',
    ],
)
def test_bad_filters(given: str) -> None:
    """Filters that are none, or that tell of containers that are not seen, are refused."""
    with pytest.raises(Rejected):
        narrow_filters(given, ACCESS)


def test_environment_is_hidden() -> None:
    """Names of variables pass, their values do not."""
    assert "secret" not in json.dumps(without_secrets(inspected()))
    assert without_secrets(inspected())["Config"]["Env"][0].startswith("A=")


def test_info_is_short() -> None:
    """Of the engine's own information nothing passes that is not named."""
    info = {"ServerVersion": "1", "HttpProxy": "http://user:secret@proxy", "Name": "host"}
    assert short_info(info) == {"ServerVersion": "1"}


def test_own_containers_are_known_by_their_labels() -> None:
    """What is hidden is what the container fence labels; a container of one of our images is not."""
    assert {labels.INSTANCE, labels.SANDBOX} == OWN_LABELS
    access = EngineAccess(label="lab=1")
    theirs = {"Labels": {"lab": "1", "ringfence.image.target": "base"}}
    assert is_visible(theirs, access)
    assert not is_visible({"Labels": {"lab": "1", labels.SANDBOX: "abc"}}, access)
