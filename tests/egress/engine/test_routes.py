"""Which requests are calls of the engine, however they are written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.engine.routes import ROUTES, Rejected, find_call

PASSED = {
    ("GET", "/_ping"): ("ping", "/_ping"),
    ("HEAD", "/_ping"): ("ping", "/_ping"),
    ("GET", "/v1.41/version"): ("version", "/v1.41/version"),
    ("GET", "/containers/json?all=1"): ("list", "/containers/json?all=1"),
    ("GET", "/v1.41/containers/web/logs?follow=1&stdout=1&tail=all&since="): (
        "logs",
        "/v1.41/containers/ID/logs?follow=1&stdout=1&tail=all",
    ),
    ("GET", "/v1.41/containers/web/top?ps_args="): ("top", "/v1.41/containers/ID/top"),
    ("POST", "/v1.41/containers/a%62c/restart?t=5"): ("restart", "/v1.41/containers/ID/restart?t=5"),
    ("POST", "/exec/0a1b/start"): ("exec_start", "/exec/ID/start"),
}
REFUSED = [
    ("POST", "/v1.41/containers/create"),
    ("POST", "/containers/create?name=x"),
    ("POST", "/v1.41/build"),
    ("POST", "/commit?container=web"),
    ("POST", "/images/create?fromImage=x"),
    ("POST", "/images/load"),
    ("DELETE", "/containers/web"),
    ("POST", "/containers/web/kill"),
    ("POST", "/containers/web/update"),
    ("POST", "/containers/web/rename?name=x"),
    ("POST", "/containers/web/attach?stdin=1"),
    ("GET", "/containers/web/attach/ws"),
    ("PUT", "/containers/web/archive?path=/"),
    ("GET", "/containers/web/archive?path=/etc/passwd"),
    ("GET", "/containers/web/export"),
    ("GET", "/volumes"),
    ("GET", "/networks"),
    ("POST", "/swarm/init"),
    ("GET", "/secrets"),
    ("GET", "/plugins"),
    ("GET", "/events"),
    ("GET", "/system/df"),
    ("POST", "/session"),
    ("POST", "/grpc"),
    ("GET", "/v1.41/v1.41/version"),
    ("GET", "/v1.41"),
    ("GET", "/"),
    ("GET", ""),
    ("GET", "*"),
    ("GET", "http://docker/version"),
    ("GET", "//version"),
    ("GET", "/v1.41//containers/json"),
    ("GET", "/containers/json/"),
    ("GET", "/containers/../containers/json"),
    ("GET", "/containers/%2e%2e/json"),
    ("GET", "/containers/web%2fjson/json"),
    ("GET", "/containers/web%2Flogs"),
    ("GET", "/containers/%252e%252e/json"),
    ("GET", "/containers/a;b/json"),
    ("GET", "/containers/a\\b/json"),
    ("GET", "/containers/-x/json"),
    ("GET", "/containers/%00/json"),
    ("GET", "/containers/%ff/json"),
    ("GET", "/containers/\u00e9/json"),
    ("GET", "/Containers/json"),
    ("GET", "/containers/JSON"),
    ("POST", "/containers/web/Restart"),
    ("get", "/version"),
    ("GET", "/V1.41/version"),
    ("GET", "/version#x"),
    ("GET", "/containers/web/top?ps_args=e"),
    ("GET", "/containers/web/logs?tail=1&tail=2"),
    ("GET", "/containers/web/logs?stdout=1%262"),
    ("GET", "/containers/web/json?unknown=1"),
    ("GET", "/containers/json?all"),
    ("POST", "/containers/web/stop?signal=9"),
    ("POST", "/containers/web/restart?t=-1"),
    ("POST", "/containers/web/restart?t=100000"),
    ("GET", "/version?" + "a" * 20_000),
    ("GET", "/containers/" + "a" * 200 + "/json"),
]


@pytest.mark.parametrize(("method", "target"), PASSED)
def test_passed(method: str, target: str) -> None:
    """A call of the table is found, and its target is built anew."""
    call = find_call(method, target)
    assert (call.route.action, call.target("ID")) == PASSED[method, target]


@pytest.mark.parametrize(("method", "target"), REFUSED, ids=lambda word: word[:40])
def test_refused(method: str, target: str) -> None:
    """What is not in the table is refused, however its path is written."""
    with pytest.raises(Rejected):
        find_call(method, target)


@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "DELETE", "PUT"]),
    parts=st.lists(
        st.sampled_from(
            [
                "v1.41",
                "containers",
                "json",
                "exec",
                "web",
                "start",
                "..",
                ".",
                "",
                "%2e",
                "%2f",
                "create",
                "a%00b",
                "é",
            ]
        ),
        max_size=6,
    ),
    query=st.text(alphabet="at=&%1f;", max_size=12),
)
def test_any_target(method: str, parts: list[str], query: str) -> None:
    """Whatever is asked, what goes to the engine is one of the table's paths about one plain name."""
    try:
        call = find_call(method, "/" + "/".join(parts) + (f"?{query}" if query else ""))
    except Rejected:
        return
    path = call.target("ID").partition("?")[0].removeprefix("/v1.41")
    known = {"/" + re.sub(r"\{(exec)?\}", "ID", route.path) for route in ROUTES}
    assert path in known
    assert not call.reference or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", call.reference)


def test_only_reading_is_free() -> None:
    """Every call that needs no grant reads."""
    assert {route.method for route in ROUTES if route.needs is None} == {"GET", "HEAD"}
