"""Builds a release, installs it as users do, tries it, and writes what it consists of: `make release-check`.

Steps, each of which needs a package index at most:

* sdist and wheel are built twice, from copies of the tracked files at different places, and have the same bytes;
* both contain what they should, and their metadata and the README are what a package index accepts and shows;
* links in pages and docstrings lead somewhere (those to other hosts are only requested with `--outside`);
* the wheel with the locked dependencies, and the sdist with the newest ones, are installed by the system's Python,
  and their commands, pages, modules and the demo are tried without the checkout;
* an SBOM of the wheel's environment is written in CycloneDX's format.

`dist/` then holds sdist, wheel, SBOM and SHA256SUMS. Everything else is in a temporary directory.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from release import artifacts, sbom, trial
from release.base import CheckFailed, Release, run

ROOT = Path(__file__).resolve().parent.parent


class Result(NamedTuple):
    """How a step ended: `ok`, `FAILED` or `skipped`, after which time, and one line about it (or the failure)."""

    verdict: str
    seconds: float
    text: str


def main() -> int:
    """Run all steps, print a summary, and return 1 if one failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--outside", action="store_true", help="also request links to other hosts")
    parser.add_argument(
        "--python", default=_system_python(), help="the interpreter that installs the packages"
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary directory")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with _work_directory(keep=arguments.keep) as work:
        release = Release(root=ROOT, work=work, python=arguments.python, outside=arguments.outside)
        results = _run_steps(release)
    print(f"\n=== release-check of ringfence {release.version}: {time.monotonic() - begun:.0f} s")
    for name, result in results.items():
        print(f"{result.verdict:7} {result.seconds:4.0f} s  {name}: {result.text.partition(chr(10))[0]}")
    return int(any(result.verdict != "ok" for result in results.values()))


def _run_steps(release: Release) -> dict[str, Result]:
    """Run each step once those that it needs have ended; two at a time, as they wait for indexes and disks."""
    waiting, results = dict(STEPS), dict[str, Result]()
    with ThreadPoolExecutor(2) as pool:
        running: dict[Future[Result], str] = {}
        while waiting or running:
            for name, (step, needs) in list(waiting.items()):
                if all(need in results for need in needs) and len(running) < 2:
                    del waiting[name]
                    failed = [need for need in needs if results[need].verdict != "ok"]
                    running[pool.submit(_run_step, step, release, failed)] = name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                results[name] = future.result()
                print(f"\n=== {name}: {results[name].verdict}\n{results[name].text}", flush=True)
    return {name: results[name] for name in STEPS}


def _run_step(step: Callable[[Release], str], release: Release, failed: list[str]) -> Result:
    begun = time.monotonic()
    if failed:
        return Result("skipped", 0, f"it needs {failed[0]!r}")
    try:
        verdict, text = "ok", step(release)
    except CheckFailed as exc:
        verdict, text = "FAILED", str(exc)
    return Result(verdict, time.monotonic() - begun, text)


def _check_links(release: Release) -> str:
    command = [sys.executable, "-m", "tests.docs.links", *(["--outside"] if release.outside else [])]
    return run(command, cwd=release.root).strip().splitlines()[-1]


def _system_python() -> str:
    """Return the interpreter that users of the system have; that of this script if there is none new enough."""
    system = "/usr/bin/python3"
    is_new_enough = "import sys, ensurepip; raise SystemExit(sys.version_info < (3, 11))"
    try:
        run([system, "-I", "-c", is_new_enough])
    except CheckFailed:
        return sys.executable
    return system


@contextmanager
def _work_directory(*, keep: bool) -> Iterator[Path]:
    os.umask(0o022)
    work = Path(tempfile.mkdtemp(prefix="ringfence-release-"))
    work.chmod(0o755)  # a sandbox of root's runs as another user, who must reach what is installed here
    try:
        yield work
    finally:
        if keep:
            print(f"\nkept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


_WHEEL, _SDIST = "wheel, with locked dependencies", "sdist, with newest dependencies"
_CHECKS: dict[str, tuple[Callable[[Release], str], tuple[str, ...]]] = {
    "tools": (artifacts.install_tools, ()),
    "links": (_check_links, ()),
    "build": (artifacts.build, ("tools",)),
    "contents": (artifacts.check_contents, ("build",)),
    "metadata and README": (artifacts.check_metadata, ("build",)),
    _WHEEL: (trial.try_wheel, ("build",)),
    _SDIST: (trial.try_sdist, ("build",)),
    "SBOM": (sbom.write, (_WHEEL,)),
    "extras": (trial.try_extras, (_WHEEL,)),
    "demo": (trial.try_demo, (_WHEEL,)),
}
STEPS = {**_CHECKS, "dist/": (artifacts.publish, tuple(_CHECKS))}
"""Each step with those that it needs; it is skipped if one of them failed."""


if __name__ == "__main__":
    sys.exit(main())
