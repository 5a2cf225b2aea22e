"""How long a run waits for a warm sandbox, beside a cold one; and what a supervisor weighs.

python -m benchmarks.pool
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import anyio
from tests.sandbox.workspace.runs import prepare

from benchmarks.claim import Row, p50_p99
from ringfence.config.paths import make_private_dir
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.open import RESERVED_ID

_ROUNDS = 20
_FILES = 500
_READY_S = 60.0


async def measure() -> list[Row]:
    """All rows of this file."""
    with state_of_its_own() as folder:
        return await _measure(folder)


@contextmanager
def state_of_its_own() -> Iterator[Path]:
    """A directory whose `state` is the state directory meanwhile."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        Path(name).chmod(0o711)
        before = os.environ.get("RINGFENCE_STATE_DIR")
        os.environ["RINGFENCE_STATE_DIR"] = str(make_private_dir(Path(name, "state")))
        try:
            yield Path(name)
        finally:
            os.environ.pop("RINGFENCE_STATE_DIR")
            if before is not None:
                os.environ["RINGFENCE_STATE_DIR"] = before


async def _measure(folder: Path) -> list[Row]:
    workspace = small_project(folder / "workspace", files=_FILES)
    spec = SandboxSpec(backend="bubblewrap", workspace=workspace)
    pool = Pool(folder / "state" / "pool", PoolSize(1, 600.0))
    warm, cold, weights = [], [], []
    for _ in range(_ROUNDS):
        run_dir, placement = await prepared(workspace, folder / "state")
        began = time.perf_counter()
        async with Sandbox.start(spec, placement=placement, sandbox_id=uuid4().hex[:12]) as sandbox:
            cold.append((time.perf_counter() - began) * 1e3)
            assert (await sandbox.run(["true"])).ok
        await pool.refill(spec, placement, run_dir)
        weights.append(await await_ready(pool))
        run_dir, placement = await prepared(workspace, folder / "state")
        began = time.perf_counter()
        async with pool.opened(spec, placement, run_dir, sandbox_id=uuid4().hex[:12]) as sandbox:
            warm.append((time.perf_counter() - began) * 1e3)
            assert (await sandbox.run(["true"])).ok
        await pool.drain()
    assert pool.counts().hits == _ROUNDS, pool.counts()
    kept = statistics.median(warm) <= 20
    beside = f"cold start of the same sandbox: {p50_p99(cold)}"
    return [
        Row(
            "a run's sandbox from the pool, to its first command", "p50 ≤ 20 ms", p50_p99(warm), beside, kept
        ),
        Row(
            "memory of a warm sandbox's supervisor (RSS)",
            "≤ 50 MiB",
            f"p50 {statistics.median(weights):.0f} MiB",
            "",
            statistics.median(weights) <= 50,
        ),
    ]


def small_project(workspace: Path, *, files: int) -> Path:
    """A small project under git, of whoever may lend it to a sandbox."""
    workspace.mkdir()
    for number in range(files):
        (workspace / f"file-{number}.txt").write_text(f"{number}\n" * 20)
    (workspace / ".envrc").write_text("export A=1\n")
    identity = ["-c", "user.name=b", "-c", "user.email=b@b"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=workspace, check=True)
    if os.getuid() == 0:
        for path in (workspace, *workspace.rglob("*")):
            os.chown(path, RESERVED_ID, RESERVED_ID)
    return workspace


async def prepared(workspace: Path, state: Path, *, unseen: str | None = None) -> tuple[Path, Placement]:
    """The directory of a run, and where its workspace is: a clone where an engine does not see it."""
    run = f"2026-01-01T00-00-00-{uuid4().hex[:8]}"
    run_dir = make_private_dir(state / "runs" / run)
    mode: WorkspaceMode | None = "clone" if unseen else None
    made = await prepare(workspace, mode, run=run, run_dir=run_dir, state=state, unseen=unseen)
    return run_dir, made.placement


async def await_ready(pool: Pool) -> float:
    """Wait until one waits; returns what its supervisor weighs, in MiB."""
    with anyio.fail_after(_READY_S):
        while True:
            states = [state for _, state in pool.waiting() if state is not None]
            if states:
                pages = int(Path(f"/proc/{states[0].pid}/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
            await anyio.sleep(0.02)


if __name__ == "__main__":
    for row in anyio.run(measure):
        print(row)
