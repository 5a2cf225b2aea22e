"""How fast a transcript of 100 MB is read, into events, and in how much memory.

    python -m benchmarks.transcripts [MEGABYTES]

Each client's file is read in a process of its own, so that the memory is that of reading. Reading waits for nothing
once the file is in the page cache: what counts is processor time. Exits with 1 below 50 MB/s or above 64 MiB.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.claim import Row

_PROMISED_MB_S = 50
_PROMISED_MIB = 64
_ROUNDS = 3
_WORDS = ("def test_parse():", "assert", "FAILED", "src/app/main.py:12", "Traceback", "return", "\n", "é")
_STAMP = "2026-01-28T10:30:45.123Z"
_ENVELOPE = {
    "isSidechain": False,
    "userType": "external",
    "entrypoint": "cli",
    "cwd": "/home/dev/project",
    "sessionId": "0c6f2d0e-5d5c-4c55-9a41-5d4f5d0a7b11",
    "version": "2.1.329",
    "gitBranch": "main",
    "timestamp": _STAMP,
}


def measure(megabytes: int = 100) -> list[Row]:
    """Write a transcript of each client, then read it."""
    rows = []
    for client, records in (("claude", _claude), ("codex", _codex)):
        with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as folder:
            path = Path(folder, "session.jsonl")
            size = _write(path, records, megabytes * 1_000_000)
            best_s, peak_mib = min(_read(path) for _ in range(_ROUNDS))
            beside_s = min(_json_alone(path) for _ in range(_ROUNDS))
        rate = size / 1e6 / best_s
        rows.append(
            Row(
                f"a {client} transcript of {size / 1e6:.0f} MB into events, by processor time",
                f"≥ {_PROMISED_MB_S} MB/s in ≤ {_PROMISED_MIB} MiB",
                f"{rate:.0f} MB/s in {peak_mib:.0f} MiB",
                f"`json.loads` of each line alone: {size / 1e6 / beside_s:.0f} MB/s",
                rate >= _PROMISED_MB_S and peak_mib <= _PROMISED_MIB,
            )
        )
    return rows


def _write(path: Path, records: Callable[[], Iterator[dict[str, object]]], size: int) -> int:
    written = 0
    with path.open("w") as file:
        for record in records():
            written += file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            if written >= size:
                break
    return path.stat().st_size


def _read(path: Path) -> tuple[float, float]:
    """Seconds and the process's peak memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.transcripts", "--read", path],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def _read_here(path: Path) -> None:
    from ringfence.runtime.transcript.session import read_events

    began = time.process_time()
    for _event in read_events(path):
        pass
    seconds = time.process_time() - began
    # Not getrusage: what it tells of a new process's peak includes that of the one it was started by.
    status = Path("/proc/self/status").read_text()
    peak_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(seconds, int(peak_kib) / 1024)


def _json_alone(path: Path) -> float:
    began = time.process_time()
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
    return time.process_time() - began


def _claude() -> Iterator[dict[str, object]]:
    """Turns of an agent with bookkeeping between them: results of mostly 0.1-2 KB, now and then 30 KB."""
    chance = random.Random(1)
    yield _ENVELOPE | {"type": "user", "message": {"role": "user", "content": "Repair the build."}}
    turn = 0
    while True:
        turn += 1
        call = f"toolu_{turn:024d}"
        usage = {"input_tokens": 1200 + turn, "output_tokens": 80, "cache_read_input_tokens": 9000}
        head = {"id": f"msg_{turn:024d}", "type": "message", "role": "assistant", "model": "claude-opus-4-5"}
        said = {"type": "text", "text": "Now I run the tests again."}
        used = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"pytest -q t{turn}.py"}}
        for block in (said, used):
            message = head | {"content": [block], "stop_reason": "tool_use", "usage": usage}
            yield _ENVELOPE | {"type": "assistant", "uuid": f"{turn:032x}", "message": message}
        output = _output(chance)
        result = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": False}
        yield _ENVELOPE | {
            "type": "user",
            "message": {"role": "user", "content": [result]},
            "toolUseResult": {"stdout": output, "stderr": "", "interrupted": False},
        }
        yield {"type": "last-prompt", "lastPrompt": "Repair the build.", "sessionId": _ENVELOPE["sessionId"]}


def _codex() -> Iterator[dict[str, object]]:
    """The same work as the codex CLI writes it down."""
    chance = random.Random(1)

    def line(kind: str, **payload: object) -> dict[str, object]:
        return {"timestamp": _STAMP, "ordinal": turn, "type": kind, "payload": payload}

    turn = 0
    yield line("session_meta", id="0c6f2d0e", cwd="/home/dev/project", cli_version="0.169.0")
    yield line("turn_context", model="gpt-5.5-codex", cwd="/home/dev/project")
    while True:
        turn += 1
        call, arguments = f"call_{turn:024d}", json.dumps({"cmd": f"pytest -q t{turn}.py"})
        said = [{"type": "output_text", "text": "Now I run the tests again.", "annotations": []}]
        yield line("response_item", type="message", role="assistant", id=f"msg_{turn}", content=said)
        yield line(
            "response_item", type="function_call", name="exec_command", arguments=arguments, call_id=call
        )
        usage = {"input_tokens": 10200 + turn, "cached_input_tokens": 9000, "output_tokens": 80}
        yield line("token_usage_record", usage=usage, response_id=f"resp_{turn}")
        output = _output(chance)
        item = {"type": "CommandExecution", "id": call, "aggregated_output": output, "exit_code": 0}
        yield line("event_msg", type="item_completed", item=item)
        yield line("response_item", type="function_call_output", call_id=call, output=output)


def _output(chance: random.Random) -> str:
    return " ".join(chance.choices(_WORDS, k=3000 if chance.random() < 0.01 else chance.randint(10, 200)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        _read_here(Path(sys.argv[2]))
        raise SystemExit(0)
    rows = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    for row in rows:
        print(row)
    raise SystemExit(0 if all(row.is_kept for row in rows) else 1)
