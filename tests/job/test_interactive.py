"""What a client on a terminal leaves of its sessions is read into the record, whatever it is, within bounds."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.events import Event, SessionKept
from ringfence.job.agent_cli import TerminalSessions
from ringfence.runtime.session import SessionStore, lock_session
from ringfence.sandbox import Sandbox, SandboxSpec

CLIENT_DIR = "/home/agent/.claude"
PATTERNS = ("projects/*.jsonl",)
LINE = b'{"type":"user","sessionId":"x","uuid":"u","message":{"role":"user","content":"x"}}\n'
_READS = """
import sys
from pathlib import Path
from ringfence.job.agent_cli import _next_batch
from ringfence.runtime.transcript.session import read_events
from tests.memory import peak_kib
events, count = read_events(Path(sys.argv[1])), 0
while batch := _next_batch(events):
    count += len(batch)
print(count, peak_kib() // 1024)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SessionStore]:
    """Where sessions are kept."""
    with lock_session("s1", by="r1", state=tmp_path) as held:
        yield held


@pytest.mark.slow
def test_large_records_are_not_held_together(tmp_path: Path):
    """Each may stand for hundreds of megabytes of memory; a session may hold dozens."""
    large = LINE.replace(b'"content":"x"', b'"content":[' + b"{}," * 400_000 + b"{}]")
    (tmp_path / "s.jsonl").write_bytes(LINE + large * 12)
    command = [sys.executable, "-c", _READS, str(tmp_path / "s.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, peak_mib = map(int, done.stdout.split())
    assert count == 13
    assert peak_mib < 250


async def test_what_is_not_read_in_time_is_told(home: SessionStore):
    """The record says that it has not all; a session that takes long cannot hide another."""
    told: list[Event] = []

    async def emit(event: Event) -> None:
        told.append(event)

    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        kept = TerminalSessions(home, sandbox, CLIENT_DIR, PATTERNS, read_s=0)
        async with kept.synchronized(emit):
            await sandbox.write_file(f"{CLIENT_DIR}/projects/w/s.jsonl", LINE)
    last = told[-1]
    assert isinstance(last, SessionKept)
    assert (last.files, last.problem) == (1, "the record has not all of it: that took longer than 0 s")
