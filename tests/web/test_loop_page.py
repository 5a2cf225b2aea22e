"""The page of a loop, for a report that uses every part."""

import json
from dataclasses import asdict

from starlette.requests import Request
from tests.loop.report.sample import lifelike

from ringfence.web.renderer import Page, render

_CHROME: dict[str, object] = {"nav": [], "fleet": "", "version": "", "banner": "", "status": None}


def test_a_loop_shows_stories_verdicts_and_evidence() -> None:
    """Each story shows its state, each criterion its verdict with the evidence, and agents' texts are escaped."""
    report = json.loads(json.dumps(asdict(lifelike(hostile="<script>x</script>"))))
    request = Request(
        {"type": "http", "method": "GET", "path": "/loops/x", "query_string": b"", "headers": []}
    )
    page = bytes(
        render(request, Page("loop", {"loop_report": report, "passed": 1}), chrome=_CHROME).body
    ).decode()
    assert "add(2, 3) == 5" in page
    assert "calc.py:4" in page
    assert "tests.test_calc.TestAdd.test_add" in page
    assert "&lt;script&gt;x" in page
    assert "<script>x" not in page
    for story in report["stories"]:
        assert f"</svg>{story['state']}" in page
