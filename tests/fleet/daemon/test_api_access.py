"""Access to the API over TCP: tokens, scopes, and foreign web pages."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.testclient import TestClient
from tests.fleet.daemon.test_api import daemon_of
from tests.fleet.fleet_files import FleetFiles
from tests.fleet.running_fleet import standing
from tests.ports import kept_port

from ringfence.fleet.api.access import FailureLimiter, TokenAccess
from ringfence.fleet.api.app import create_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.tokens import SCOPES, Tokens, TokenScope


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose loop does not run."""
    made = daemon_of(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def log() -> list[str]:
    """The lines that are logged."""
    return []


@pytest.fixture
def client(daemon: Daemon, log: list[str]) -> TestClient:
    """A client that sends requests as over TCP, to `fleet.example:8443`."""

    def write(line: str, /, **_fields: object) -> None:
        log.append(line)

    app = create_app(ApiContext.of_daemon(daemon))
    guarded = TokenAccess(app, daemon.database, hosts=["127.0.0.1:8443", "fleet.example"], log=write)
    return TestClient(guarded, base_url="https://fleet.example:8443", raise_server_exceptions=False)


def _token(daemon: Daemon, scope: TokenScope, **options: Any) -> dict[str, str]:
    token = anyio.run(lambda: Tokens(daemon.database).create(f"my-{scope}", scope, **options))
    return {"Authorization": f"Bearer {token}"}


def _leaves(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Yield all routes, including those of included routers."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from _leaves(included.routes)


def _routes() -> dict[str, APIRoute]:
    found: dict[str, APIRoute] = {}
    for route in _leaves(create_app(ApiContext(Path())).routes):
        assert isinstance(route, APIRoute), route
        found |= {f"{method} {route.path}": route for method in route.methods or ()}
    return found


def _scope_of(route: APIRoute) -> list[str]:
    return [scope for each in route.dependencies for scope in getattr(each, "scopes", None) or ()]


@pytest.mark.parametrize("name", _routes())
def test_each_route_declares_one_scope(name: str):
    """There is no route without a scope; only routes that read have the scope `read`, and none of the machine's own."""
    (scope,) = _scope_of(_routes()[name])
    assert scope in SCOPES
    is_own = any(
        name.endswith("/tokens") or f" /v1/{noun}" in name for noun in ("runs", "loops", "apply-requests")
    )
    assert (scope == "read") == (name.startswith("GET ") and not is_own)


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/x", "/v1/runs/x/events", "/v1/loops", "/v1/loops/x"])
def test_runs_of_the_machine_are_for_its_owner(client: TestClient, daemon: Daemon, path: str):
    """Over TCP, runs and loops outside the fleet are shown to tokens of scope `admin` only."""
    statuses = [client.get(path, headers=_token(daemon, scope)).status_code for scope in SCOPES]
    assert statuses == [403, 403, 404 if path.endswith(("x", "events")) else 200]


@pytest.mark.parametrize("action", ["apply", "undo"])
def test_a_fleets_token_changes_no_workspace_of_its_owner(client: TestClient, daemon: Daemon, action: str):
    """A token of scope `act` neither applies nor undoes the changes of a run outside the fleet."""
    answer = client.post(f"/v1/runs/x/{action}", json={}, headers=_token(daemon, "act"))
    assert answer.status_code == 403


def test_the_application_itself_lets_nobody_in(daemon: Daemon):
    """Without access control before it, the application refuses every route, also those that do not exist."""
    client = TestClient(create_app(ApiContext.of_daemon(daemon)), raise_server_exceptions=False)
    for name in _routes():
        method, path = name.split()
        assert client.request(method, path.replace("{", "").replace("}", ""), json={}).status_code in (
            401,
            422,
        ), name
    assert client.get("/v1/status").status_code == 401


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_opens_routes_of_its_scope_only(client: TestClient, daemon: Daemon, scope: TokenScope):
    """Reading, acting and administering need a token of that scope; a larger scope includes the smaller ones."""
    headers = _token(daemon, scope)
    statuses = [
        client.get("/v1/status", headers=headers).status_code,
        client.post("/v1/agents/a/jobs", json={}, headers=headers).status_code,
        client.get("/v1/tokens", headers=headers).status_code,
    ]
    rank = SCOPES.index(scope)
    assert statuses == [200, 201 if rank > 0 else 403, 200 if rank > 1 else 403]


def test_a_wrong_token_is_refused_and_limited(client: TestClient, daemon: Daemon):
    """Requests without a valid token are refused; after ten failures only those with a valid one are answered."""
    headers = _token(daemon, "read")
    refused = client.get("/v1/status")
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["exit_code"] == 77
    for token in ["", "rft_wrong", headers["Authorization"][7:-1], "\u00e9", *["x"] * 5]:
        wrong = client.get("/v1/status", headers={b"Authorization": f"Bearer {token}".encode()})
        assert wrong.status_code == 401, token
    limited = client.get("/v1/status")
    assert limited.status_code == 429
    assert 0 < int(limited.headers["Retry-After"]) <= 61
    assert client.get("/v1/status", headers=headers).status_code == 200


def test_a_limit_passes():
    """An address that failed ten times may try again a minute after the first; other addresses are not affected."""
    limiter = FailureLimiter()
    for _ in range(10):
        assert limiter.wait_s("east") == 0
        limiter.add("east")
    assert 0 < limiter.wait_s("east") <= 60
    assert limiter.wait_s("west") == 0


def test_a_token_ends(client: TestClient, daemon: Daemon):
    """A token that has expired or was removed is refused; its secret is stored and listed nowhere."""
    old = _token(daemon, "read", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert client.get("/v1/status", headers=old).status_code == 401
    admin = _token(daemon, "admin")
    created = client.post(
        "/v1/tokens", json={"name": "phone", "scope": "act", "expires_s": 60}, headers=admin
    )
    phone = {"Authorization": f"Bearer {created.json()['token']}"}
    assert client.get("/v1/status", headers=phone).status_code == 200
    listed = client.get("/v1/tokens", headers=admin)
    assert {each["name"]: each["is_expired"] for each in listed.json()} == {
        "my-admin": False,
        "my-read": True,
        "phone": False,
    }
    assert created.json()["token"] not in listed.text
    stored = b"".join(file.read_bytes() for file in (daemon.state / "fleet").glob("fleet.db*"))
    assert b"rft_" not in stored
    assert b"phone" in stored
    assert client.delete("/v1/tokens/phone", headers=admin).status_code == 200
    assert client.get("/v1/status", headers=phone).status_code == 401
    assert (
        client.post("/v1/tokens", json={"name": "my-read", "scope": "act"}, headers=admin).status_code == 400
    )


_FOREIGN = {
    "host": ({"Host": "evil.example"}, 421),
    "host by rebinding": ({"Host": "fleet.example.evil:8443"}, 421),
    "other port of the address": ({"Host": "127.0.0.1:1"}, 421),
    "origin": ({"Origin": "https://evil.example"}, 403),
    "no origin": ({"Origin": "null"}, 403),
    "form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "plain text": ({"Content-Type": "text/plain"}, 415),
    "own origin": ({"Origin": "https://fleet.example:8443"}, 201),
    "own address": ({"Host": "127.0.0.1:8443"}, 201),
}


@pytest.mark.parametrize(("headers", "status"), _FOREIGN.values(), ids=_FOREIGN)
def test_a_page_of_another_site_can_do_nothing(
    client: TestClient, daemon: Daemon, headers: dict[str, str], status: int
):
    """Foreign hosts, origins and forms are refused, even with a valid token; no response allows another origin."""
    given = {"Content-Type": "application/json", **_token(daemon, "act"), **headers}
    response = client.post("/v1/agents/a/jobs", content=b"{}", headers=given)
    assert response.status_code == status, response.text
    assert not [name for name in response.headers if name.lower().startswith("access-control")]
    assert len(client.get("/v1/jobs", headers=_token(daemon, "read")).json()) == (status == 201)


def test_actions_are_logged_with_their_sender(client: TestClient, daemon: Daemon, log: list[str]):
    """Each changing request is logged with the name of its token, never with the secret."""
    headers = _token(daemon, "act")
    client.get("/v1/status", headers=headers)
    client.post("/v1/agents/a/jobs", json={}, headers=headers)
    assert log == ["token my-act: POST /v1/agents/a/jobs"]


@pytest.mark.slow
async def test_a_daemon_listens_for_tokens(tmp_path: Path):
    """With `fleet.api` the daemon listens there, and answers only requests with a token; the socket needs none."""
    with kept_port() as port:
        fleet = f"api: {{address: '127.0.0.1:{port}'}}"
        async with standing(tmp_path, fleet=fleet) as daemon:
            token = await Tokens(daemon.database).create("t", "read")
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert (await client.get("/v1/status")).status_code == 401
                found = await client.get("/v1/status", headers={"Authorization": f"Bearer {token}"})
                assert found.json()["fleet"] == "fleet"
            local = httpx2.AsyncHTTPTransport(uds=str(daemon.state / "fleet" / "daemon.sock"))
            async with httpx2.AsyncClient(transport=local, base_url="http://fleet") as client:
                assert (await client.get("/v1/status")).status_code == 200


@pytest.mark.slow
def test_tokens_are_managed_by_commands(crew: FleetFiles):
    """`fleet token` creates a token that is printed once, lists it without its secret, and removes it."""
    refused = crew.run("fleet", "token", "create", "phone")
    assert (refused.code, "there is no fleet yet" in refused.err) == (2, True)
    crew.write(fleet={"name": "c", "workers": 0}, agents={"a": {"prompt": "do it", "workspace": "."}})
    crew.up()
    created = crew.does("fleet", "token", "create", "phone", "--scope", "act", "--expires", "30d")
    token = created.out.strip()
    assert token.startswith("rft_")
    assert "only time" in created.err
    (listed,) = crew.does("fleet", "token", "ls", "--json").json["tokens"]
    assert (listed["name"], listed["scope"], listed["is_expired"]) == ("phone", "act", False)
    assert token not in crew.does("fleet", "token", "ls").out
    assert crew.run("fleet", "token", "create", "phone").code == 2
    assert "choose read, act, admin" in crew.run("fleet", "token", "create", "x", "--scope", "all").err
    crew.does("fleet", "token", "rm", "phone")
    assert crew.run("fleet", "token", "rm", "phone").code == 2
