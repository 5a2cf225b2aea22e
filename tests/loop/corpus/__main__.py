"""Prints the table of the corpus: each attempt, its language, what is expected of the gate and what it did.

    python -m tests.loop.corpus [--sample] [--jobs N] [--verbose] [NAME ...]

A name is `kind/name` of a case, or the beginning of one. Exits with 1 if the gate did something
else than expected, known gaps aside.
"""

import argparse
import os
import shutil
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.loop.corpus.harness import Case, Got, cases, missing, reason, run_case

_LINE = "{:44}  {:8}  {:9}  {}"


def main() -> int:
    """Run the cases that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.loop.corpus", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--sample", action="store_true", help="only the cases that make test runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="loops at a time")
    parser.add_argument("--verbose", action="store_true", help="all reasons of all cases")
    asked = parser.parse_args()
    chosen = [
        case
        for case in cases().values()
        if (not asked.names or case.name.startswith(tuple(asked.names)))
        and (case.is_sample or not asked.sample)
    ]
    print(_LINE.format("ATTEMPT", "LANGUAGE", "EXPECTED", "GOT"))
    failed, skipped = 0, 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        for case, got in zip(chosen, pool.map(_run, chosen), strict=True):
            if got is None:
                skipped += 1
                print(_LINE.format(case.name, case.base.language, case.expected, f"skipped: {missing(case)}"))
                continue
            is_right = got.is_as_expected(case)
            failed += not is_right and not case.gap
            shown = got.verdict if is_right else f"{got.verdict}  <-- {case.gap or reason(got)}"
            print(_LINE.format(case.name, case.base.language, case.expected, shown), flush=True)
            if asked.verbose:
                for each in got.reasons:
                    print(textwrap.indent(each, "    "))
    print(f"{len(chosen) - failed - skipped} as expected, {failed} not, {skipped} skipped")
    return int(failed > 0)


def _run(case: Case) -> Got | None:
    if missing(case):
        return None
    root = Path(tempfile.mkdtemp(prefix="ringfence-corpus-"))
    try:
        return run_case(case, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
