"""What a checkpoint of a large workspace costs: the first, an unchanged one, a small change, diff, and undo.

    python -m benchmarks.checkpoint [FILES]

Exits with 1 where an unchanged workspace of 50,000 files takes more than 0.3 s. `git status` beside it tells a slow
machine from a slow checkpoint.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from benchmarks.claim import Row
from ringfence.sandbox.workspace.restore import restore
from ringfence.sandbox.workspace.store import CheckpointStore

_PROMISED_MS = 300.0
_ROUNDS = 9
_GIT = ("git", "-c", "user.name=b", "-c", "user.email=b@b", "-c", "core.untrackedCache=false")


async def measure(count: int = 50_000) -> list[Row]:
    """Build a repository of `count` files and take checkpoints of it, in turn with git's own answers."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        workspace = Path(name, "workspace")
        _build(workspace, count)
        add_ms = _git_add(workspace)
        # Files changed just now are read again; a user's were changed longer ago.
        await anyio.sleep(2.1)
        return await _measure(CheckpointStore(workspace, Path(name, "state")), count, add_ms)


async def _measure(store: CheckpointStore, count: int, add_ms: float) -> list[Row]:
    first = await store.take("bench/before")
    unchanged, status = [], []
    for _ in range(_ROUNDS):
        status.append(_git(store.workspace, "status", "--porcelain"))
        unchanged.append((await store.take("bench/again")).duration_ms)
    for number in range(50):
        (store.workspace / f"pkg{number % 10}" / f"new{number}.py").write_text("print()\n")
    small = await store.take("bench/after", base=first.id)
    diff_ms = await _timed(lambda: store.diff(first.id, small.id))
    undo_ms = await _timed(lambda: restore(store, wanted=first.id, expected=small.id, label="bench/undo"))
    median, peer = statistics.median(unchanged), statistics.median(status)
    kept = median <= _PROMISED_MS * count / 50_000
    size = f"{count:,} files"
    return [
        Row(
            f"first checkpoint, {size}",
            "-",
            f"{first.duration_ms:.0f} ms",
            f"`git add -A` {add_ms:.0f} ms",
            True,
        ),
        Row(
            f"checkpoint of an unchanged workspace, {size}",
            f"≤ {_PROMISED_MS:.0f} ms at 50,000 files",
            f"p50 {median:.0f} ms",
            f"`git status` {peer:.0f} ms; {median / peer:.1f}x",
            kept,
        ),
        Row("checkpoint after 50 new files", "-", f"{small.duration_ms:.0f} ms", "-", True),
        Row("diff of the two", "-", f"{diff_ms:.0f} ms", "-", True),
        Row("undo of the 50, with its own checkpoint", "-", f"{undo_ms:.0f} ms", "-", True),
    ]


def _build(workspace: Path, count: int) -> None:
    for number in range(count):
        folder = workspace / f"pkg{number // 500}" / f"module{number // 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.py").write_text(f"value = {number}\n" * 40)


def _git_add(workspace: Path) -> float:
    _git(workspace, "init", "-q")
    took = _git(workspace, "add", "-A")
    _git(workspace, "commit", "-qm", "all")
    return took


def _git(workspace: Path, *arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([*_GIT, *arguments], cwd=workspace, check=True, capture_output=True)
    return (time.perf_counter() - began) * 1000


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Measure and print."""
    rows = anyio.run(measure, int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
    for row in rows:
        print(f"{row.claim}: {row.measured} (promised {row.promise}; beside it {row.beside})")
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
