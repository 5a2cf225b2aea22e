"""Runs to test with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.events import Event, JobCreated, JobEnded, MessageSent, ToolCalled, ToolReturned
from ringfence.journal import Journal, new_run_id, run_dir

MakeRun = Callable[..., Path]


def conversation() -> list[Event]:
    """A short run's events."""
    return [
        JobCreated(
            job_id="job",
            session_id="session",
            prompt="\n  fix the test\nplease",
            model="model-1",
            runtime="api",
            toolset="operator",
            workspace="/work",
            version="0",
            configuration={"labels": {"team": "core"}},
        ),
        MessageSent(content="fix the test"),
        ToolCalled(call_id="c1", tool="shell", arguments={"command": "ls"}, reasoning="to see"),
        ToolReturned(call_id="c1", tool="shell", is_error=False, content="a\nb", duration_ms=1.5),
        JobEnded(
            state="succeeded", exit_code=0, reason="the check passed", turns=1, tool_calls=1, duration_s=2.0
        ),
    ]


@pytest.fixture
def events() -> list[Event]:
    """A short run's events."""
    return conversation()


@pytest.fixture
def make_run() -> MakeRun:
    """Makes a whole run: `make_run(seal=True, events=None)` gives its directory."""

    def make(*, seal: bool = True, events: list[Event] | None = None) -> Path:
        run_id = new_run_id()
        with Journal.create(run_dir(run_id), run_id) as journal:
            for event in conversation() if events is None else events:
                journal.append(event)
            if seal:
                journal.seal()
        return run_dir(run_id)

    return make
