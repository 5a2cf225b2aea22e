"""What a checkpoint of a large workspace costs: fork, diff and roll back, beside git's own in the same run.

    python -m benchmarks.checkpoint [FILES] [MEGABYTES]

Builds a workspace of that size with as many megabytes in `.git` again: minutes, and three times the size on disk.

Exits with 1 where 50,000 files take more than 0.3 s to fork, 0.3 s to compare with what is there or 0.5 s to roll
back. Git's way is a tree in an index beside the user's: `add -A`, `write-tree`; `diff-tree`; `read-tree -u --reset`.
It looks for no sockets and repositories, and does not guard against files that somebody else changed since.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from benchmarks.claim import Row
from ringfence.sandbox.workspace.restore import restore
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

_FORK_MS = 300.0
_DIFF_MS = 300.0
_ROLL_BACK_MS = 500.0
_ROUNDS = 5
_BLOB_MB = 50
_EDITED, _ADDED, _DELETED = 50, 20, 10
"""The small change of a turn of an agent."""
_GIT = ("git", "-c", "user.name=b", "-c", "user.email=b@b", "-c", "core.untrackedCache=false")


async def measure(count: int = 50_000, megabytes: int = 1000) -> list[Row]:
    """Build a repository of `count` files and take checkpoints of it, in turn with git's own answers."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        bench = _Bench(
            Path(name, "workspace"),
            Path(name, "state"),
            Path(name, "side-index"),
            count,
            megabytes,
        )
        bench.build()
        bench.git("init", "-q")
        add_ms = bench.git("add", "-A")
        bench.git("commit", "-qm", "all")
        bench.fill_git()
        bench.side("add", "-A")
        # Files changed just now are read again; a user's were changed longer ago.
        await anyio.sleep(2.1)
        first = await bench.store.take("bench/before")
        for number in range(_ROUNDS):
            await bench.round(number)
        return [bench.first_row(first.duration_ms, add_ms), *bench.rows()]


@dataclass
class _Bench:
    workspace: Path
    state: Path
    side_index: Path
    count: int
    megabytes: int
    ours: dict[str, list[float]] = field(default_factory=dict)
    peers: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = SnapshotStore(self.workspace, self.state)

    def build(self) -> None:
        size = max(1, self.megabytes * 1024**2 // self.count)
        for number in range(self.count):
            folder = self._folder(number, self.workspace)
            folder.mkdir(parents=True, exist_ok=True)
            # Digits of noise: they do not repeat, and compress to half.
            noise = os.urandom(size // 2).hex().encode()
            (folder / f"file{number}.py").write_bytes((b"value = %d\n" % number + noise)[:size])

    def fill_git(self) -> None:
        """Give `.git` as many megabytes as the files have, by contents that no commit leads to."""
        objects = self.workspace / ".git" / "objects"
        held = sum(path.stat().st_size for path in objects.rglob("*") if path.is_file())
        for _ in range(max(0, self.megabytes - held // 1024**2) // _BLOB_MB):
            command = (*_GIT, "-c", "core.compression=0", "hash-object", "-w", "--stdin")
            noise = os.urandom(_BLOB_MB * 1024**2)
            subprocess.run(command, cwd=self.workspace, check=True, input=noise, stdout=subprocess.DEVNULL)

    @staticmethod
    def _folder(number: int, root: Path) -> Path:
        return root / f"pkg{number // 500}" / f"module{number // 10}"

    async def round(self, number: int) -> None:
        """Fork, change, diff and roll back; each by git, then by us."""
        listed = await self.store.take(f"fork{number}/listed")
        self._note(self.ours, "listed anew", listed.duration_ms)
        self._note(self.peers, "listed anew", self.git("status", "--porcelain"))
        self._note(self.peers, "fork", self.side("add", "-A") + self.side("write-tree"))
        tree = self.side_says("write-tree")
        before = await self.store.take(f"fork{number}/before")
        self._note(self.ours, "fork", before.duration_ms)
        self._change(number)
        after = await self._compare(number, before.id, tree)
        work = partial(restore, self.store, wanted=before.id, expected=after, label=f"fork{number}/undo")
        self._note(self.ours, "roll back", await _timed(work))
        self._change(number)
        keep = self.side("add", "-A") + self.side("write-tree")
        self._note(self.peers, "roll back", keep + self.side("read-tree", "-u", "--reset", tree))
        self.side("add", "-A")
        if self.side_says("write-tree") != tree:
            raise SystemExit("rolled back to something else")
        await anyio.sleep(2.1)

    async def _compare(self, number: int, before: str, tree: str) -> str:
        """Tell what changed since a state that was kept; by git, then by us."""
        keep = self.side("add", "-A") + self.side("write-tree")
        changed = self.side_says("write-tree")
        self._note(self.peers, "diff", keep + self.side("diff-tree", "-r", "--numstat", tree, changed))
        began = time.perf_counter()
        after = await self.store.take(f"fork{number}/after", base=before)
        found = await self.store.diff(before, after.id)
        self._note(self.ours, "diff", _since(began))
        if len(found.files) != _EDITED + _ADDED + _DELETED:
            raise SystemExit(f"the comparison tells of {len(found.files)} changes")
        return after.id

    def _change(self, number: int) -> None:
        root = self.workspace
        step = self.count // (_EDITED + _DELETED)
        for place in range(_EDITED):
            at = place * step
            (self._folder(at, root) / f"file{at}.py").write_text(f"changed in round {number}\n")
        for place in range(_EDITED, _EDITED + _DELETED):
            at = place * step
            (self._folder(at, root) / f"file{at}.py").unlink()
        for place in range(_ADDED):
            (self._folder(place * step, root) / f"new{place}.py").write_text("print()\n")

    @staticmethod
    def _note(among: dict[str, list[float]], act: str, took_ms: float) -> None:
        among.setdefault(act, []).append(took_ms)

    def git(self, *arguments: str) -> float:
        """Run git as the user would; milliseconds."""
        began = time.perf_counter()
        subprocess.run([*_GIT, *arguments], cwd=self.workspace, check=True, capture_output=True)
        return (time.perf_counter() - began) * 1000

    def side(self, *arguments: str) -> float:
        """Run git on an index beside the user's; milliseconds."""
        began = time.perf_counter()
        self.side_says(*arguments)
        return (time.perf_counter() - began) * 1000

    def side_says(self, *arguments: str) -> str:
        """What git answers on an index beside the user's."""
        env = {**os.environ, "GIT_INDEX_FILE": str(self.side_index)}
        done = subprocess.run(
            [*_GIT, *arguments], cwd=self.workspace, check=True, capture_output=True, text=True, env=env
        )
        return done.stdout.strip()

    def first_row(self, took_ms: float, add_ms: float) -> Row:
        return Row(
            f"first checkpoint, {self._size}", "-", f"{took_ms:.0f} ms", f"`git add -A` {add_ms:.0f} ms", True
        )

    @property
    def _size(self) -> str:
        return f"{self.count:,} files, {self.megabytes:,} MB and as many in `.git`"

    def rows(self) -> list[Row]:
        """What was promised, what was measured."""
        small = f"{_EDITED} edited, {_ADDED} new, {_DELETED} deleted"
        return [
            self._row("fork", f"fork (a checkpoint), {self._size}", _FORK_MS),
            self._row("listed anew", "fork after names changed, beside `git status`", None),
            self._row("diff", f"diff of the workspace with a checkpoint, {small}", _DIFF_MS),
            self._row("roll back", f"roll back {small}, the state before being kept", _ROLL_BACK_MS),
        ]

    def _row(self, act: str, claim: str, promised_ms: float | None) -> Row:
        median, peer = statistics.median(self.ours[act]), statistics.median(self.peers[act])
        return Row(
            claim,
            f"≤ {promised_ms:.0f} ms at 50,000 files" if promised_ms else "-",
            f"p50 {median:.0f} ms (best {min(self.ours[act]):.0f})",
            f"git: {peer:.0f} ms; {median / peer:.1f}x",
            promised_ms is None or median <= promised_ms * max(1.0, self.count / 50_000),
        )


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Measure and print."""
    sizes = dict(zip(("count", "megabytes"), map(int, sys.argv[1:]), strict=False))
    rows = anyio.run(partial(measure, **sizes))
    for row in rows:
        print(f"{row.claim}: {row.measured} (promised {row.promise}; beside it {row.beside})")
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
