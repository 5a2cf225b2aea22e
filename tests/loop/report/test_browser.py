"""The report in a real browser: Chromium, with a hostile page and a server that would notice a request."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.chromium import running_chromium
from tests.loop.report.sample import lifelike

from ringfence.loop.report.html import render_html


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    with running_chromium() as running:
        yield running


class _Visited(BaseHTTPRequestHandler):
    """Notes every request."""

    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_error(404)

    do_POST = do_GET  # noqa: N815 - its name there

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and the paths that were asked of it."""
    paths: list[str] = []
    handler = type("_Handler", (_Visited,), {"paths": paths})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", paths
        listening.shutdown()


def _open(browser: Browser, place: Path, hostile: str, **options: object) -> Page:
    file = place / "report.html"
    file.write_text(render_html(lifelike(hostile=hostile)))
    page = browser.new_page(**options)  # type: ignore[arg-type]  # as given
    page.goto(file.as_uri())
    return page


def _hostile(address: str) -> str:
    return (
        f"<script>fetch('{address}/script'); document.title = 'taken'</script><img src={address}/img "
        f"onerror=\"document.title='taken'\"><style>@import url({address}/css); body {{ display: none }}</style>"
        f"<link rel=prefetch href={address}/link><iframe src={address}/frame></iframe><form action={address}/form>"
        f"<button autofocus onfocus=\"document.title='taken'\">x</button></form><meta http-equiv=refresh "
        f'content="0; url={address}/refresh"><base href={address}><svg onload="document.title=\'taken\'">'
        f"</bdi></code></section></main><a href=\"javascript:document.title='taken'\">click</a> {{{{ 7 * 7 }}}} \u202e"
    )


def test_nothing_hostile_runs_loads_or_shows_as_more_than_text(
    browser: Browser, tmp_path: Path, server: tuple[str, list[str]]
) -> None:
    """A browser with scripts switched on neither executes nor requests anything, and finds no element but ours."""
    address, requested = server
    page = _open(browser, tmp_path, _hostile(address))
    page.wait_for_load_state("networkidle")
    assert page.title() == "Loop 20261126-100000-abcdef"
    assert page.url == (tmp_path / "report.html").as_uri()
    assert requested == []
    assert (
        page.locator("script, img, iframe, form, button, svg, link, base, a[href^=javascript]").count() == 0
    )
    assert "onfocus" in page.locator("#story-3 h2").inner_text()
    assert page.locator("body").is_visible()
    page.close()


def test_evidence_leads_to_its_line(browser: Browser, tmp_path: Path) -> None:
    """A click opens the collapsed diff, and the line is marked and in view."""
    page = _open(browser, tmp_path, "x")
    line = page.locator("#story-1 > .changes tr", has=page.locator("#d1-1-L4"))
    assert not line.is_visible()
    page.locator("#story-1 > .criteria a").first.click()
    line.wait_for(state="visible")
    assert "return a + b" in line.inner_text()
    box, height = line.bounding_box(), page.evaluate("innerHeight")
    assert box is not None
    assert 0 <= box["y"] < height
    assert line.evaluate("row => getComputedStyle(row).outlineStyle") == "solid"
    page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 400)])
def test_the_page_fits_and_can_be_read(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    """Light, dark and on a phone: nothing is wider than the window, and text has contrast to its background."""
    page = _open(
        browser, tmp_path, "<b>" * 200, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in _COLOURS)
    assert abs(_light(ink) - _light(paper)) > 150
    if directory := os.environ.get("TEST_PICTURES"):  # to be looked at
        page.screenshot(path=Path(directory) / f"report-{scheme}-{width}.png", full_page=True)
    page.close()


_COLOURS = ("color", "backgroundColor")


def _light(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return 0.3 * red + 0.6 * green + 0.1 * blue
