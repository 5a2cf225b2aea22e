"""Access to the dashboard: only signed-in browsers, and only from the dashboard's own pages."""

from collections.abc import Iterator

import httpx2
import pytest
from starlette.types import ASGIApp
from tests.web.dashboard import Dashboard, running_dashboard

from ringfence.fleet.api.app import create_local_app
from ringfence.fleet.api.context import ApiContext
from ringfence.web import Sessions
from ringfence.web.guard import POLICY


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard of a machine without a fleet."""
    directory = tmp_path_factory.mktemp("d")

    async def open_api() -> ASGIApp:
        return create_local_app(ApiContext(directory))

    with running_dashboard(open_api, directory) as running:
        yield running


@pytest.fixture
def anyone(dashboard: Dashboard) -> Iterator[httpx2.Client]:
    """A client that is not signed in."""
    with httpx2.Client(base_url=dashboard.url) as client:
        yield client


@pytest.fixture
def user(dashboard: Dashboard) -> Iterator[httpx2.Client]:
    """A client that is signed in."""
    with httpx2.Client(base_url=dashboard.url) as client:
        assert client.get(dashboard.new_link()).status_code == 200
        yield client


def test_a_link_signs_in_once(dashboard: Dashboard, anyone: httpx2.Client) -> None:
    """A second use of a link, by any browser, is refused."""
    link = dashboard.new_link()
    cookie = anyone.get(link).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    with httpx2.Client(base_url=dashboard.url) as other:
        refused = other.get(link)
        assert refused.status_code == 403
        assert "ringfence serve" in refused.text
        assert "set-cookie" not in refused.headers


def test_a_link_works_for_ten_minutes() -> None:
    """Ten minutes after it was made a link signs nobody in; nor does a link that another one has replaced."""
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    replaced = sessions.new_link()
    link = sessions.new_link()
    assert sessions.redeem(replaced) is None
    now[0] = 600.0
    assert sessions.redeem(link) is None
    link = sessions.new_link()
    now[0] += 599.0
    assert sessions.redeem(link) is not None


def test_a_session_ends_unless_it_is_used() -> None:
    """Each request keeps a session for 12 hours; without a request in that time it ends for good."""
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    session = sessions.redeem(sessions.new_link())
    assert session is not None
    for _ in range(3):
        now[0] += 12 * 3600 - 1
        assert sessions.is_valid(session)
    now[0] += 12 * 3600
    assert not sessions.is_valid(session)
    assert not sessions.is_valid(session)


def test_a_preview_does_not_use_up_a_link(dashboard: Dashboard, anyone: httpx2.Client) -> None:
    """HEAD of a link, as chat programs send it, signs nobody in; the link still works."""
    link = dashboard.new_link()
    assert "set-cookie" not in anyone.head(link).headers
    assert "set-cookie" in anyone.get(link).headers


@pytest.mark.parametrize("token", ["", "x", "\udcff".encode("utf-8", "surrogatepass").decode("latin-1")])
def test_a_wrong_link_says_how_to_get_another(anyone: httpx2.Client, token: str) -> None:
    """A wrong link does not sign in, and its page names the command that prints the next one."""
    refused = anyone.get("/login", params={"token": token})
    assert refused.status_code == 403
    assert "ringfence serve" in refused.text


@pytest.mark.parametrize("path", ["/", "/jobs", "/runs", "/stream", "/jobs/x/follow", "/unknown"])
@pytest.mark.parametrize("cookie", [None, "wrong", '"; x="'])
def test_nothing_is_shown_without_a_session(anyone: httpx2.Client, path: str, cookie: str | None) -> None:
    """Without a session each path answers 401, whether it exists or not."""
    headers = {} if cookie is None else {"Cookie": f"ringfence_test={cookie}"}
    assert anyone.get(path, headers=headers).status_code == 401


@pytest.mark.parametrize("path", ["/runs", "/unknown", "/login", "/static/dashboard.css", "/static/unknown"])
def test_every_response_has_the_headers(user: httpx2.Client, path: str) -> None:
    """Every response forbids foreign scripts, framing, caching and referrers."""
    headers = user.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X-Ringfence": "no"}, 403),
        ({"X-Ringfence": "page", "Origin": "https://evil.example"}, 403),
        ({"X-Ringfence": "page", "Origin": "null"}, 403),
        ({"X-Ringfence": "page", "Host": "evil.example"}, 400),
    ],
    ids=["no header", "another header", "another origin", "no origin", "another host"],
)
def test_another_site_can_do_nothing(user: httpx2.Client, headers: dict[str, str], status: int) -> None:
    """Even with the session cookie, an action needs the header that the pages send, and their host and origin."""
    refused = user.post("/jobs/x/cancel", headers=headers)
    assert refused.status_code == status
    assert "daemon" not in refused.text


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}], ids=str)
def test_another_site_can_read_nothing(user: httpx2.Client, headers: dict[str, str]) -> None:
    """Requests with another host, as by DNS rebinding, or another origin are refused."""
    assert user.get("/runs", headers=headers).status_code in (400, 403)


def test_an_action_of_a_page_reaches_the_api(user: httpx2.Client, dashboard: Dashboard) -> None:
    """With that header, an action reaches the API, and the API's reason for a refusal is shown."""
    headers = {"X-Ringfence": "page", "Origin": dashboard.url}
    answer = user.post("/jobs/x/cancel", headers=headers)
    assert "daemon is running" in answer.text


def test_a_long_body_is_not_read(user: httpx2.Client, dashboard: Dashboard) -> None:
    """A form of more than a mebibyte is refused."""
    headers = {"X-Ringfence": "page", "Content-Type": "application/x-www-form-urlencoded"}
    answer = user.post("/jobs/x/fork", headers=headers, content=b"prompt=" + b"x" * (1024 * 1024))
    assert answer.status_code == 413
