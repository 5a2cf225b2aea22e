"""Time that the harness adds to a turn of an agent: scripted model over HTTP, one `shell true`, journal.

python -m benchmarks.turn_overhead
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.claim import Row, p50_p99
from ringfence.sandbox.workspace.open import RESERVED_ID

_TURNS = 60


def measure() -> list[Row]:
    """From one `model.replied` of the journal to the next: tool call, command, events, request, reply."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        root = Path(name)
        root.chmod(0o711)
        workspace = root / "workspace"
        workspace.mkdir()
        if os.getuid() == 0:
            os.chown(workspace, RESERVED_ID, RESERVED_ID)
        turn = {"tools": [{"name": "shell", "input": {"command": "true", "reasoning": "measure"}}]}
        script = root / "script.jsonl"
        script.write_text("".join(json.dumps(one) + "\n" for one in [*[turn] * _TURNS, {"text": "done"}]))
        env = {**os.environ, "RINGFENCE_STATE_DIR": str(root / "state")}
        subprocess.run(
            [*_RINGFENCE, "run", "measure", "-C", str(workspace), "--model", f"scripted:{script}", "--max-turns", "100"],
            env=env, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        journal = next((root / "state" / "runs").glob("*/journal.jsonl"))
        events = [json.loads(line) for line in journal.read_text().splitlines()]
    moments = [datetime.fromisoformat(e["time"]).timestamp() for e in events if e["event"] == "model.replied"]
    turns = [(after - before) * 1e3 for before, after in pairwise(moments)]
    commands = [e["data"]["duration_ms"] for e in events if e["event"] == "tool.returned"]
    kept = statistics.median(turns) <= 15
    beside = f"of it the shell call: p50 {statistics.median(commands):.1f} ms; {len(turns)} turns, growing conversation"
    return [
        Row("harness time per turn (`shell true`)", "p50 ≤ 15 ms", p50_p99(turns, digits=1), beside, kept)
    ]


_RINGFENCE = [str(Path(sys.executable).with_name("ringfence"))]

if __name__ == "__main__":
    for row in measure():
        print(row)
