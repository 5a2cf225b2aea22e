"""`make mutants`: disable each guard in a copy of the tree, and see that a test notices.

A guard is *killed* if a test fails without it, and *survives* if all of its tests pass all the same. A survivor needs a
reason in `guards.toml`. A mutant is *broken* if its tests could not judge it: they fail with the guard in place, or
without it a fixture or an import fails, or tests are skipped that ran before. A guard is *not run* if all of its tests
are skipped even with the guard in place.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.guard_list import Guard, problems_of, read_guards
from tests.mutants.workbench import TestRun, Workbench, WorkbenchError

_OUTCOMES = ("killed", "survived, with a reason", "survived", "broken", "not run")


@dataclass(frozen=True)
class Verdict:
    """What came of one guard's mutant."""

    guard: Guard
    outcome: str
    detail: str
    """The test that failed; the reason; or what went wrong."""
    duration_s: float

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to do something about it."""
        if self.outcome == "not run":
            return not self.guard.needs
        return self.outcome in ("survived", "broken")


class Bench:
    """Several workbenches, and what each set of tests says of the tree as it is."""

    def __init__(self, benches: Sequence[Workbench]) -> None:
        self._free: SimpleQueue[Workbench] = SimpleQueue()
        for bench in benches:
            self._free.put(bench)
        self._known: dict[tuple[str, ...], TestRun] = {}
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    def judge(self, guard: Guard) -> Verdict:
        """Run a guard's tests with it and without it."""
        began = time.monotonic()
        bench = self._free.get()
        try:
            before = self._unmutated(bench, guard.tests)
            outcome, detail = _refused(before) or _judged(guard, before, bench.run_mutant(guard))
        finally:
            self._free.put(bench)
        return Verdict(guard, outcome, detail, time.monotonic() - began)

    def _unmutated(self, bench: Workbench, tests: tuple[str, ...]) -> TestRun:
        with self._lock:
            lock = self._locks.setdefault(tests, threading.Lock())
        with lock:
            if tests not in self._known:
                self._known[tests] = bench.run(tests)
        return self._known[tests]


def _refused(before: TestRun) -> tuple[str, str] | None:
    """Why nothing can be said about a guard; None if its tests pass while it is there."""
    if before.exit_code != 0:
        return "broken", f"the tests do not pass with the guard: {before.summary}"
    if not before.passed:
        return "not run", before.summary
    return None


def _judged(guard: Guard, before: TestRun, after: TestRun) -> tuple[str, str]:
    if after.failed_test is not None:
        if guard.survives:
            return "broken", f"{after.failed_test} notices it now: remove its reason"
        return "killed", after.failed_test
    if after.exit_code != 0 or after.passed < before.passed:
        return "broken", after.summary
    return ("survived, with a reason", guard.survives) if guard.survives else ("survived", "no test failed")


def main() -> int:
    """Judge the guards that are named, or all; 1 if there is something to do."""
    options = _options()
    guards = read_guards()
    unknown = set(options.ids) - {guard.id for guard in guards}
    if unknown:
        print(f"there is no guard {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [guard for guard in guards if guard.id in options.ids or not options.ids]
    if problems := [problem for guard in chosen for problem in problems_of(guard)]:
        print("\n".join(problems), file=sys.stderr)
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # tests drop to other users, who import from here
        try:
            verdicts = _judge_all(Path(folder), chosen, options.jobs)
        except WorkbenchError as exc:
            print(exc, file=sys.stderr)
            return 1
    print(_table(verdicts) if options.markdown else _summary(verdicts))
    print(f"{len(verdicts)} mutants in {(time.monotonic() - began) / 60:.1f} min", file=sys.stderr)
    return int(any(verdict.is_problem for verdict in verdicts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("ids", nargs="*", help="guards to judge (default: all)")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="mutants at once (default: %(default)s)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the whole table as Markdown")
    return parser.parse_args()


def _judge_all(folder: Path, guards: Sequence[Guard], jobs: int) -> list[Verdict]:
    benches = [Workbench(folder / str(number)) for number in range(max(1, min(jobs, len(guards))))]
    for bench in benches:
        bench.prepare()
    shared = Bench(benches)
    with ThreadPoolExecutor(len(benches)) as pool:
        running = {pool.submit(shared.judge, guard): guard for guard in guards}
        done = []
        for future in as_completed(running):
            verdict = future.result()
            done.append(verdict)
            _tell(verdict, len(done), len(guards))
    places = {guard.id: place for place, guard in enumerate(guards)}
    return sorted(done, key=lambda verdict: places[verdict.guard.id])


def _tell(verdict: Verdict, count: int, total: int) -> None:
    print(
        f"[{count}/{total}] {verdict.guard.id}: {verdict.outcome} ({verdict.duration_s:.0f} s): {verdict.detail}",
        file=sys.stderr,
        flush=True,
    )


def _summary(verdicts: Sequence[Verdict]) -> str:
    """Counts by area, and what is to be done."""
    areas: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        areas.setdefault(verdict.guard.area, Counter())[verdict.outcome] += 1
    rows: list[tuple[str, ...]] = [("area", "guards", *_OUTCOMES)]
    for area, counts in sorted(areas.items()):
        rows.append((area, str(counts.total()), *(str(counts[outcome]) for outcome in _OUTCOMES)))
    total = Counter(verdict.outcome for verdict in verdicts)
    rows.append(("all", str(total.total()), *(str(total[outcome]) for outcome in _OUTCOMES)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    problems = [f"{each.guard.id}: {each.outcome}: {each.detail}" for each in verdicts if each.is_problem]
    return "\n".join([*lines, *problems])


def _table(verdicts: Sequence[Verdict]) -> str:
    """Every guard as a row of a table in Markdown."""
    rows = ["| Guard | What it prevents | Outcome | By | Seconds |", "|---|---|---|---|---|"]
    for verdict in verdicts:
        cells = (
            f"`{verdict.guard.id}`",
            verdict.guard.prevents,
            verdict.outcome,
            verdict.detail,
            f"{verdict.duration_s:.0f}",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
