"""What a snapshot of a large workspace costs: fork, diff and roll back, beside git's own in the same run.

    python -m benchmarks.checkpoint [FILES] [MEGABYTES]

Builds a workspace of that size with as many megabytes in `.git` again: minutes, and three times the size on disk.

Git's way is a tree in an index beside the user's, in a git directory of its own: `add -A`, `write-tree`; `diff-tree`;
`read-tree -u --reset`. It looks for no sockets and repositories, and does not guard against files that somebody else
changed since. Both take turns; compared are the medians of processor time, children included, and of wall time. Exits
with 1 where one of ours is more than its multiple of git's, from 50,000 files on: of few files our start takes longest.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from benchmarks.claim import Row
from ringfence.sandbox.workspace.restore import restore
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

_FACTORS = {"fork": (2.0, 2.5), "diff": (1.3, 1.3), "roll back": (1.3, 1.3)}
"""How many times git's own processor time, and wall time, may be taken. A fork reads the user's index, too, and looks
for what git would not add; on a busy machine its threads wait for one another."""
_LARGE = 50_000
_ROUNDS = 9
_BLOB_MB = 50
_EDITED, _ADDED, _DELETED = 50, 20, 10
"""The small change of a turn of an agent."""
_GIT = (
    "git",
    "-c",
    "user.name=b",
    "-c",
    "user.email=b@b",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "gc.auto=0",
)


async def measure(count: int = 50_000, megabytes: int = 1000) -> list[Row]:
    """Build a repository of `count` files and take snapshots of it, in turn with git's own answers."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        bench = _Bench(Path(name, "workspace"), Path(name, "state"), Path(name, "side"), count, megabytes)
        bench.build()
        bench.git("init", "-q")
        bench.git("add", "-A")
        bench.git("commit", "-qm", "all")
        bench.fill_git()
        bench.git("init", "-q", "--bare", str(bench.side_dir))
        # Files changed just now are read again; a user's were changed longer ago.
        await anyio.sleep(2.1)
        with bench.timed("git", "first"):
            bench.side("add", "-A")
            bench.side("write-tree")
        with bench.timed("ours", "first"):
            await bench.store.take("bench/before")
        for number in range(_ROUNDS):
            await bench.round(number)
        return bench.rows()


@dataclass
class _Bench:
    workspace: Path
    state: Path
    side_dir: Path
    count: int
    megabytes: int
    took: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """Processor time and wall time, in milliseconds, by whose and what."""

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
        with self.timed("git", "fork"):
            self.side("add", "-A")
            tree = self.side("write-tree")
        with self.timed("ours", "fork"):
            before = (await self.store.take(f"fork{number}/before")).id
        self._change(number)
        with self.timed("git", "diff"):
            self.side("add", "-A")
            changed = self.side("write-tree")
            self.side("diff-tree", "-r", "--numstat", tree, changed)
        with self.timed("ours", "diff"):
            after = (await self.store.take(f"fork{number}/after", base=before)).id
            found = await self.store.diff(before, after)
        if len(found.files) != _EDITED + _ADDED + _DELETED:
            raise SystemExit(f"the comparison tells of {len(found.files)} changes")
        with self.timed("ours", "roll back"):
            await restore(self.store, wanted=before, expected=after, label=f"fork{number}/undo")
        self._change(number)
        with self.timed("git", "roll back"):
            self.side("add", "-A")
            self.side("write-tree")
            self.side("read-tree", "-u", "--reset", tree)
        self.side("add", "-A")
        if self.side("write-tree") != tree:
            raise SystemExit("rolled back to something else")
        await anyio.sleep(2.1)

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

    @contextmanager
    def timed(self, whose: str, act: str) -> Iterator[None]:
        """Note what an act takes."""
        began, used = time.perf_counter(), _used_s()
        yield
        took = (_used_s() - used) * 1000, (time.perf_counter() - began) * 1000
        self.took.setdefault((whose, act), []).append(took)

    def git(self, *arguments: str) -> None:
        """Run git as the user would."""
        subprocess.run([*_GIT, *arguments], cwd=self.workspace, check=True, capture_output=True)

    def side(self, *arguments: str) -> str:
        """What git answers on an index beside the user's."""
        env = {**os.environ, "GIT_DIR": str(self.side_dir), "GIT_WORK_TREE": str(self.workspace)}
        done = subprocess.run(
            [*_GIT, *arguments], cwd=self.workspace, check=True, capture_output=True, text=True, env=env
        )
        return done.stdout.strip()

    def rows(self) -> list[Row]:
        """What was promised, what was measured."""
        size = f"{self.count:,} files, {self.megabytes:,} MB and as many in `.git`"
        small = f"{_EDITED} edited, {_ADDED} new, {_DELETED} deleted"
        return [
            self._row("first", f"first snapshot, {size}"),
            self._row("fork", f"fork (a snapshot before a run), {size}"),
            self._row("diff", f"snapshot of the workspace and diff with an earlier one, {small}"),
            self._row("roll back", f"roll back {small}, the state before being kept"),
        ]

    def _row(self, act: str, claim: str) -> Row:
        factors = _FACTORS.get(act)
        own_cpu, own_wall = (statistics.median(part) for part in zip(*self.took["ours", act], strict=True))
        cpu, wall = (statistics.median(part) for part in zip(*self.took["git", act], strict=True))
        return Row(
            claim,
            f"≤ {factors[0]} x git's processor time and {factors[1]} x its wall time, at {_LARGE:,} files"
            if factors
            else "-",
            f"p50 {own_cpu:.0f} ms of processor time, {own_wall:.0f} ms of wall time",
            f"git: {cpu:.0f} and {wall:.0f} ms; {own_cpu / cpu:.2f}x and {own_wall / wall:.2f}x",
            not factors
            or self.count < _LARGE
            or (own_cpu / cpu <= factors[0] and own_wall / wall <= factors[1]),
        )


def _used_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> int:
    """Measure and print."""
    sizes = dict(zip(("count", "megabytes"), map(int, sys.argv[1:]), strict=False))
    rows = anyio.run(partial(measure, **sizes))
    for row in rows:
        print(f"{row.claim}: {row.measured} (promised {row.promise}; beside it {row.beside})")
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
