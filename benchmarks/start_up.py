"""How long `ringfence --help` takes, beside a Python that does nothing.

python -m benchmarks.start_up
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.claim import Row, p50_p99

_RUNS = 20


def measure() -> list[Row]:
    """The two in turn."""
    ours, bare = [], []
    for _ in range(_RUNS):
        ours.append(_time([str(Path(sys.executable).with_name("ringfence")), "--help"]))
        bare.append(_time([sys.executable, "-c", "pass"]))
    kept = statistics.median(ours) <= 150
    beside = f"`python -c pass`: {p50_p99(bare, digits=0)}"
    return [Row("`ringfence --help`", "≤ 150 ms", p50_p99(ours, digits=0), beside, kept)]


def _time(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    for row in measure():
        print(row)
