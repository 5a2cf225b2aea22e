"""A session goes from one run to the next, or is forked; what is lost or differs is told."""

from pathlib import Path

import pytest

from ringfence.errors import UsageError
from ringfence.events import Event, SessionKept, SessionLost, SessionResumed
from ringfence.runtime.base import Session
from ringfence.runtime.session import SessionPlan, open_session
from ringfence.sandbox import Sandbox, SandboxSpec

CLIENT_DIR = "/home/agent/.claude"
PATTERNS = ("projects/*.jsonl",)
FILE = f"{CLIENT_DIR}/projects/w/c1.jsonl"


class Runs:
    """Runs that keep sessions, each in a sandbox of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.events: list[Event] = []
        self.told: list[Session] = []

    async def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    async def run(
        self, session: str, line: str, *, resumes: str | None = None, is_lost: bool = False
    ) -> bytes:
        """Let a client add a line to its session; what the file then holds inside."""
        plan = SessionPlan(session, "claude", "/w", self.state, resumes, "r0", ("model: was 'a', is 'b'",))
        with open_session(plan) as session_of_run:
            self.told.append(session_of_run.session)
            async with (
                Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
                session_of_run.synchronized(sandbox, CLIENT_DIR, PATTERNS, self.emit),
            ):
                if is_lost:
                    await session_of_run.restart("No conversation found", self.emit)
                    self.told.append(session_of_run.session)
                await session_of_run.note_activity("c1")
                done = await sandbox.run(
                    ["sh", "-c", f"mkdir -p {CLIENT_DIR}/projects/w; echo {line} >>{FILE}"]
                )
                assert done.ok
                return await sandbox.read_file(FILE)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Over one state directory."""
    return Runs(tmp_path)


async def test_a_session_goes_on_in_the_next_run(runs: Runs):
    """The client is told which one, and finds its file as it was."""
    assert await runs.run("s1", "one") == b"one\n"
    assert await runs.run("s1", "two", resumes="s1") == b"one\ntwo\n"
    first, second = runs.told
    assert (first.resumed_id, first.new_id) == (None, "s1")
    assert (second.resumed_id, second.is_forked) == ("c1", False)
    resumed = next(event for event in runs.events if isinstance(event, SessionResumed))
    assert (resumed.run, resumed.differences) == ("r0", ["model: was 'a', is 'b'"])
    assert [event.size_bytes for event in runs.events if isinstance(event, SessionKept)] == [4, 8]


async def test_a_fork_leaves_the_session_as_it_is(runs: Runs):
    """Both go on from the same place, each by itself."""
    await runs.run("s1", "one")
    assert await runs.run("s2", "fork", resumes="s1") == b"one\nfork\n"
    assert await runs.run("s1", "two", resumes="s1") == b"one\ntwo\n"
    assert runs.told[1].is_forked


async def test_a_session_of_which_nothing_was_kept_is_refused(runs: Runs):
    """Instead of beginning anew without a word."""
    with pytest.raises(UsageError, match="nothing of session 's1' was kept"):
        await runs.run("s1", "one", resumes="s1")


async def test_a_lost_session_is_told_and_begun_anew(runs: Runs):
    """With an id that the client has not seen."""
    await runs.run("s1", "one")
    await runs.run("s1", "two", resumes="s1", is_lost=True)
    assert runs.told[-1].resumed_id is None
    assert runs.told[-1].new_id not in ("s1", "c1")
    assert [event.client_session_id for event in runs.events if isinstance(event, SessionLost)] == ["c1"]
