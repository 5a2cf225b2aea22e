"""What reading costs does not depend on what is in a file."""

import subprocess
import sys
from pathlib import Path

import pytest

_LIMIT_KIB = 96 * 1024
_READ = """
import sys
from pathlib import Path
from ringfence.runtime.transcript.session import read_events
events = [event.name for event in read_events(Path(sys.argv[1]))]
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, *events)
"""
_PROMPT = b'{"type":"user","sessionId":"s","message":{"content":"hi"}}\n'
_DEEP = b'{"type":"x","a":' + b'{"a":[' * 20_000 + b"]}" * 20_000 + b"}\n"


def _read(path: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _READ, path], capture_output=True, text=True, timeout=100, check=True
    )
    peak, *events = done.stdout.split()
    return int(peak), events


@pytest.mark.slow
def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    """A line of 300 MB is passed over and told; what stands around it is read."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(_PROMPT)
    with path.open("r+b") as file:
        file.truncate(300_000_000)
        file.seek(0, 2)
        file.write(b"\n" + _PROMPT)
    peak, events = _read(path)
    assert events == ["message.sent", "transcript.damaged", "message.sent"]
    assert peak < _LIMIT_KIB


@pytest.mark.slow
def test_many_hostile_lines_cost_no_memory(tmp_path: Path) -> None:
    """Long and deep lines, again and again, are each forgotten before the next is read."""
    path = tmp_path / "s.jsonl"
    long = b'{"type":"x","sessionId":"s","text":"' + b"x" * 10_000_000 + b'"}\n'
    with path.open("wb") as file:
        for _ in range(12):
            file.write(long + _DEEP)
    peak, events = _read(path)
    assert events == ["transcript.noted", "transcript.damaged"] * 12
    assert peak < _LIMIT_KIB
