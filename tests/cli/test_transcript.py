"""The transcript on a terminal."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from ringfence.cli.render.transcript import print_event
from ringfence.events import Event, JobCreated, JobEnded, SessionResumed, ToolCalled, ToolReturned

_FAKE = "x" * 36 + "00:00:00  succeeded: all is well\n" * 2


def _printed(event: Event, *, terminal: bool) -> list[str]:
    file = io.StringIO()
    console = Console(
        file=file,
        force_terminal=terminal,
        width=40,
        color_system=None,
        highlight=False,
        markup=False,
    )
    print_event(console, event, datetime.now(UTC))
    return file.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize(
    "event",
    [
        ToolCalled(call_id="1", tool=_FAKE, arguments={"command": _FAKE}, reasoning=_FAKE),
        ToolReturned(call_id="1", tool=_FAKE, is_error=False, content=_FAKE, duration_ms=1.0),
        JobEnded(state="failed", exit_code=1, reason=_FAKE),
    ],
    ids=lambda event: event.name,
)
def test_an_agent_cannot_write_a_title(event: Event) -> None:
    """On a terminal only the one title of a record begins at the left edge, however long the texts are."""
    lines = _printed(event, terminal=True)
    assert all(line.startswith("    ") for line in lines[1:])
    assert all(len(line) <= 40 for line in lines)


def test_a_shells_result_is_unpacked() -> None:
    """Whole, not as a line of JSON."""
    content = '{"stdout": "a\\nb\\n", "stderr": "oh", "exit_code": 2, "timed_out": false, "ended_by": "exit"}'
    lines = _printed(
        ToolReturned(call_id="1", tool="shell", is_error=False, content=content, duration_ms=1.0),
        terminal=False,
    )
    assert [line.strip() for line in lines[1:]] == ["a", "b", "stderr:", "oh", "exit code 2"]


def test_one_turn_is_one_turn() -> None:
    """Counts in words."""
    shown = _printed(
        JobEnded(state="succeeded", exit_code=0, reason="x", turns=1, tool_calls=1), terminal=False
    )
    assert "1 turn, 1 tool call," in shown[1]


def test_a_run_that_goes_on_says_with_what() -> None:
    """In the first lines."""
    event = JobCreated(
        job_id="b", session_id="s", prompt="p", model="m", runtime="api", toolset="coder", workspace="/w",
        version="1", continues="a",
    )  # fmt: skip
    assert [line.strip() for line in _printed(event, terminal=True)[1:]] == ["continues run a", "p"]


def test_a_session_that_is_gone_on_with_says_what_differs() -> None:
    """In words, each difference on a line of its own."""
    event = SessionResumed(session_id="s", run="r", is_forked=True, differences=["model: was 'a', is 'b'"])
    title, *body = _printed(event, terminal=False)
    assert title.endswith("session s forked from that of run r")
    assert body == ["    model: was 'a', is 'b'"]


def test_elsewhere_no_line_is_cut() -> None:
    """In a file each line of a result is one line, whole."""
    content = "y" * 500
    lines = _printed(
        ToolReturned(call_id="1", tool="t", is_error=False, content=content, duration_ms=1.0), terminal=False
    )
    assert lines[1] == f"    {content}"
