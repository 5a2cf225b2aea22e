"""Fixtures for a browser (the system's Chromium), an example fleet, and its dashboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from starlette.types import ASGIApp
from tests.chromium import running_chromium
from tests.web.dashboard import Dashboard, running_dashboard
from tests.web.example import Example, example_environment, make_example, open_daemon

from ringfence.fleet.api.app import create_local_app
from ringfence.fleet.api.context import ApiContext

HOSTILE = (
    "</bdi></pre><script>document.title='taken'</script><img src=//evil.invalid/i onerror=\"document.title='taken'\">"
    "<style>body{display:none}</style><form action=//evil.invalid/f><button autofocus onfocus=alert(1)>x</button></form>"
    "<a href=\"javascript:document.title='taken'\">click</a><meta http-equiv=refresh content='0;url=//evil.invalid'>"
    "<base href=//evil.invalid> {{ 7 * 7 }} {% raw %} \x1b[31mred\x1b[0m \u202eevil \u200b"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    with running_chromium() as running:
        yield running


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """An example fleet; one of its jobs has hostile texts everywhere."""
    home = tmp_path_factory.mktemp("fleet")
    with example_environment(home):
        yield make_example(home, hostile=HOSTILE)


@pytest.fixture(scope="module")
def dashboard(example: Example, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard of the fleet."""

    async def open_api() -> ASGIApp:
        return create_local_app(ApiContext.of_daemon(await open_daemon(example)))

    with running_dashboard(open_api, tmp_path_factory.mktemp("d")) as running:
        yield running


@pytest.fixture(scope="module")
def signed_in(browser: Browser, dashboard: Dashboard) -> Iterator[BrowserContext]:
    """A browser that is signed in."""
    context = browser.new_context(base_url=dashboard.url, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    dashboard.sign_in(page)
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(signed_in: BrowserContext) -> Iterator[Page]:
    """A page of the browser; the test fails if a script raises, or if anything is requested from another server."""
    opened = signed_in.new_page()
    opened.set_default_timeout(10_000)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda line: errors.append(line.text) if "Content Security" in line.text else None)
    requested: list[str] = []
    opened.on("request", lambda request: requested.append(request.url))
    yield opened
    origin = opened.evaluate("location.origin")
    opened.close()
    assert errors == []
    assert [url for url in requested if not url.startswith(origin)] == []
