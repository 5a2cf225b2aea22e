"""How many events `runs verify` checks in a second, on a journal like those of real runs.

    python -m benchmarks.audit_verify [EVENTS]

Exits with 1 below the 100,000 events/s that the project promises.
"""

import hashlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.claim import Row
from ringfence.events import Event, ModelReplied, ToolCalled, ToolReturned, Usage
from ringfence.journal import Journal, new_run_id, run_dir, verify_run

_PROMISED = 100_000
_ROUNDS = 3
_WORDS = ("def test_parse():", "assert", "FAILED", "src/app/main.py:12", "Traceback", "return", "\n", "é")


def measure(count: int = 100_000) -> list[Row]:
    """Write a journal, then verify it, in turn with hashing the same bytes."""
    before = os.environ.get("RINGFENCE_STATE_DIR")
    with tempfile.TemporaryDirectory() as state:
        os.environ["RINGFENCE_STATE_DIR"] = state
        try:
            run_id = new_run_id()
            directory = run_dir(run_id)
            _write(directory, run_id, count=count)
            verify_s = min(_verify(directory) for _ in range(_ROUNDS))
            found = verify_run(directory)
            began = time.perf_counter()
            hashlib.sha256((directory / "journal.jsonl").read_bytes()).hexdigest()
            hash_s = time.perf_counter() - began
        finally:
            if before is None:
                del os.environ["RINGFENCE_STATE_DIR"]
            else:
                os.environ["RINGFENCE_STATE_DIR"] = before
    rate = found.events / verify_s
    beside = f"one SHA-256 over the file: {found.events / hash_s:,.0f} events/s"
    kept = found.ok and rate >= _PROMISED
    return [Row("`runs verify`", f"≥ {_PROMISED:,} events/s", f"{rate:,.0f} events/s", beside, kept)]


def _write(directory: Path, run_id: str, *, count: int) -> float:
    started = time.perf_counter()
    with Journal.create(directory, run_id) as journal:
        for event in _events(count):
            journal.append(event)
        journal.seal()
    return time.perf_counter() - started


def _verify(directory: Path) -> float:
    started = time.perf_counter()
    verify_run(directory)
    return time.perf_counter() - started


def _events(count: int) -> Iterator[Event]:
    """Turns of an agent: a reply, a call, a result of mostly 0.1-2 KB and now and then 30 KB."""
    chance = random.Random(1)
    for turn in range(count // 3):
        size = 3000 if chance.random() < 0.01 else chance.randint(10, 200)
        call_id = f"toolu_{turn:024d}"
        arguments = {"command": f"pytest -q tests/test_{turn}.py", "reasoning": "to see whether it passes"}
        yield ModelReplied(
            model="claude-sonnet-4-5",
            message_id=f"msg_{turn:024d}",
            content=[
                {"type": "text", "text": "Now I run the tests again."},
                {"type": "tool_use", "id": call_id, "name": "shell", "input": arguments},
            ],
            stop_reason="tool_use",
            usage=Usage(input_tokens=1200 + turn, output_tokens=80, cache_read_input_tokens=9000),
            cost_usd=0.0123,
            duration_ms=1834.2,
            request_digest=f"{turn:064x}",
        )
        yield ToolCalled(call_id=call_id, tool="shell", arguments=arguments, reasoning=arguments["reasoning"])
        output = " ".join(chance.choices(_WORDS, k=size))
        yield ToolReturned(call_id=call_id, tool="shell", is_error=False, content=output, duration_ms=412.7)


if __name__ == "__main__":
    rows = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    for row in rows:
        print(row)
    raise SystemExit(0 if all(row.is_kept for row in rows) else 1)
