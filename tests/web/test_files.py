"""The files that the dashboard sends to browsers."""

import hashlib
import re
from pathlib import Path

from ringfence.web.log import Entry
from ringfence.web.renderer import render_part, render_problem

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src" / "ringfence" / "web"


def test_htmx_is_the_file_that_the_documentation_names() -> None:
    """The bundled htmx is unchanged from its package, and its licence is beside it."""
    digest = hashlib.sha256((WEB / "static" / "htmx.min.js").read_bytes()).hexdigest()
    assert digest in (ROOT / "docs" / "explanation" / "dependencies.md").read_text()
    assert "Zero-Clause BSD" in (WEB / "static" / "htmx.LICENSE").read_text()


def test_no_template_marks_text_as_safe_or_styles_inline() -> None:
    """No template disables escaping, or contains anything that the Content-Security-Policy forbids."""
    forbidden = re.compile(
        r"\|\s*safe\b|autoescape|\bstyle=|<style|\son\w+=|<script(?! src=\"/static/)|hx-on|javascript:"
    )
    for template in (WEB / "templates").iterdir():
        assert forbidden.search(template.read_text()) is None, template.name


def test_no_page_names_another_server() -> None:
    """Pages load nothing from other servers."""
    address = re.compile(r"https?://(?!www\.w3\.org/2000/svg)")
    for file in [
        *(WEB / "templates").iterdir(),
        WEB / "static" / "dashboard.js",
        WEB / "static" / "dashboard.css",
    ]:
        assert address.search(file.read_text()) is None, file.name


def test_every_value_is_escaped_and_visible() -> None:
    """Templates escape markup in values, and spell out invisible characters."""
    page = bytes(render_problem(400, "a <b>title</b>", "\x1b[31m \u202e {{ 1 }}").body).decode()
    assert "a &lt;b&gt;title&lt;/b&gt;" in page
    assert "\\x1b[31m \\u202e {{ 1 }}" in page
    entry = Entry(1, "-", "a\u202e", "", "<i>\x1b</i>\n", is_dimmed=False, hidden_chars=0)
    part = render_part("entries", entries=[entry])
    assert "a\\u202e" in part
    assert "&lt;i&gt;\\x1b&lt;/i&gt;" in part
