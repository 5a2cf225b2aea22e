"""How many events `audit verify` checks in a second, on a journal like those of real runs.

    python benchmarks/audit_verify.py [EVENTS]

Prints a table; exits with 1 below the 100,000 events/s that the project promises.
"""

import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ringfence.events import Event, ModelReplied, ToolCalled, ToolReturned, Usage
from ringfence.journal import Journal, new_run_id, run_dir, verify

_PROMISED = 100_000
_ROUNDS = 3
_WORDS = ("def test_parse():", "assert", "FAILED", "src/app/main.py:12", "Traceback", "return", "\n", "é")


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as state:
        os.environ["RINGFENCE_STATE_DIR"] = state
        run_id = new_run_id()
        directory = run_dir(run_id)
        write_s = _write(directory, run_id, count=count)
        verify_s = min(_verify(directory) for _ in range(_ROUNDS))
        found = verify(directory)
        size = (directory / "journal.jsonl").stat().st_size
    rate = found.events / verify_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"journal        {found.events:>10,} events   {size / 1e6:,.0f} MB, {found.status}")
    print(
        f"append         {found.events / write_s:>10,.0f} events/s {write_s / found.events * 1e6:.1f} µs each"
    )
    print(f"audit verify   {rate:>10,.0f} events/s {size / verify_s / 1e6:,.0f} MB/s, promised {_PROMISED:,}")
    print(f"peak memory    {peak_mb:>10,.0f} MB")
    return 0 if found.ok and rate >= _PROMISED else 1


def _write(directory: Path, run_id: str, *, count: int) -> float:
    started = time.perf_counter()
    with Journal.create(directory, run_id) as journal:
        for event in _events(count):
            journal.append(event)
        journal.seal()
    return time.perf_counter() - started


def _verify(directory: Path) -> float:
    started = time.perf_counter()
    verify(directory)
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
    raise SystemExit(main())
