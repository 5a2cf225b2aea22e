"""A copy of the tree with an environment of its own, in which a guard is disabled and tests are run.

The package is installed in place: whatever runs the environment's Python imports `ringfence` from the copy, processes
that tests start included. `check_imports` proves that before anything is judged.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.guard_list import PACKAGE, ROOT, Guard

RUN_S = 900.0
"""Longest time that one run of a guard's tests may take."""

_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info"
)
_OPTIONS = ("-x", "-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0")
_MARKER = "this is the mutated copy"
_CRASHES = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError")
"""Errors which show that the mutant does not run, not that a test noticed it."""

_IN_A_FIXTURE = 'with "AssertionError'
"""A part of pytest's report of a failed assertion in a fixture, which counts as a test failure."""


class WorkbenchError(Exception):
    """Mutants cannot be judged here."""


@dataclass(frozen=True)
class TestRun:
    """The result of one pytest run."""

    __test__ = False

    exit_code: int
    passed: int
    failures: tuple[tuple[str, str], ...]
    """Node id and message of each test that failed."""
    errors: tuple[tuple[str, str], ...]
    """The same of fixtures that failed, and of files that could not be collected."""
    skipped: tuple[str, ...]
    """Reasons."""
    output: str
    duration_s: float

    @property
    def failed_test(self) -> str | None:
        """The first test that failed, by more than a mutant that does not run; None if none did."""
        if self.exit_code != 1:
            return None
        asserted = [(test, message) for test, message in self.errors if _IN_A_FIXTURE in message]
        found = [*self.failures, *asserted]
        return next((test for test, message in found if not message.startswith(_CRASHES)), None)

    @property
    def summary(self) -> str:
        """What happened, in one line."""
        if self.errors or self.failures:
            return "; ".join(f"{test}: {message}" for test, message in (*self.errors, *self.failures))[:300]
        if self.skipped and not self.passed:
            return self.skipped[0][:300]
        last = self.output.strip().splitlines()[-1:] or ["no output"]
        return f"exit code {self.exit_code}, {self.passed} passed: {last[0][:200]}"


class Workbench:
    """One copy; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "tree"
        self._report = folder / "report.xml"
        self._scratch = folder / "tmp"
        self._environment = self._root / ".venv"

    def prepare(self) -> None:
        """Copy the tree and its environment, and see that the copy is what is imported.

        Raises:
            WorkbenchError: It is not, or this is not the project's own environment.
        """
        shutil.copytree(ROOT, self._root, ignore=_NOT_COPIED, symlinks=True)
        copy_environment(Path(sys.prefix), self._environment, ROOT / "src", self._root / "src")
        self.check_imports()

    def check_imports(self) -> None:
        """Make the package print a marker on import, and check that every way to start it prints the marker.

        Raises:
            WorkbenchError: One of them imports another copy.
        """
        file = self._root / PACKAGE / "__init__.py"
        python = str(self._environment / "bin" / "python")
        ways: tuple[list[str], ...] = (
            [python, "-c", "import ringfence"],
            [python, "-I", "-c", "import ringfence"],
            [python, "-m", "ringfence", "--version"],
            [str(self._environment / "bin" / "ringfence"), "--version"],
        )
        text = file.read_text(encoding="utf-8")
        self._write(file, f"{text}\nimport os as _os\n_os.write(2, b{_MARKER!r})\n")
        try:
            for way in ways:
                done = subprocess.run(way, cwd="/", env={}, capture_output=True, timeout=60, check=False)
                if done.returncode != 0 or _MARKER.encode() not in done.stderr:
                    raise WorkbenchError(
                        f"`{' '.join(way)}` does not import the mutated copy: {done.stderr[-500:]!r}"
                    )
        finally:
            self._write(file, text)

    def run_mutant(self, guard: Guard) -> TestRun:
        """Run a guard's tests without the guard."""
        file = self._root / guard.path
        text = file.read_text(encoding="utf-8")
        self._write(file, guard.mutated(text))
        try:
            return self.run(guard.tests)
        finally:
            self._write(file, text)

    def run(self, tests: Sequence[str]) -> TestRun:
        """Run tests on the copy as it is."""
        self._report.unlink(missing_ok=True)
        python = str(self._environment / "bin" / "python")
        words = [
            python,
            "-m",
            "pytest",
            *_OPTIONS,
            f"--junitxml={self._report}",
            f"--basetemp={self._scratch}",
        ]
        began = time.monotonic()
        process = subprocess.Popen(
            [*words, *tests],
            cwd=self._root,
            env=_environment_for(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nended after {RUN_S:g} s".encode()
        took = time.monotonic() - began
        return self._read_report(process.returncode, output.decode("utf-8", "replace"), took)

    def _read_report(self, exit_code: int, output: str, duration_s: float) -> TestRun:
        passed, failures, errors, skipped = 0, [], [], []
        cases = ET.parse(self._report).iter("testcase") if self._report.is_file() else ()
        for case in cases:
            test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
            for outcome in outcomes:
                message = (outcome.get("message") or "").split("\n")[0]
                if outcome.tag == "failure":
                    failures.append((test, message))
                elif outcome.tag == "error":
                    errors.append((test, message))
                else:
                    skipped.append(message)
            passed += not outcomes
        return TestRun(exit_code, passed, tuple(failures), tuple(errors), tuple(skipped), output, duration_s)

    def _write(self, file: Path, text: str) -> None:
        """Replace a module and delete its bytecode: two mutants can have the same size and time of change."""
        file.write_text(text, encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()


def copy_environment(source: Path, target: Path, own: Path, copied: Path) -> None:
    """Make a virtual environment like `source` in which what is imported from `own` is imported from `copied`.

    Raises:
        WorkbenchError: `source` has no package that is installed in place from `own`.
    """
    if not (source / "pyvenv.cfg").is_file():
        raise WorkbenchError(f"{str(source)!r} is no virtual environment; run `make mutants`")
    shutil.copytree(source, target, symlinks=True, copy_function=_link_or_copy)
    for script in (target / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            _replace_bytes(script, bytes(source), bytes(target))
    places = [file for file in target.glob("lib/python*/site-packages/*.pth") if str(own) in file.read_text()]
    if not places:
        raise WorkbenchError(f"no package of {str(source)!r} is installed in place from {str(own)!r}")
    for file in places:
        _replace_bytes(file, bytes(own), bytes(copied))


def _link_or_copy(source: str, target: str) -> None:
    """Hard links: an environment has tens of thousands of files, and few of them are changed."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)


def _replace_bytes(file: Path, old: bytes, new: bytes) -> None:
    """Change a file's text without touching the one that it may be a link to."""
    mode, content = file.stat().st_mode, file.read_bytes()
    file.unlink()
    file.write_bytes(content.replace(old, new))
    file.chmod(mode)


def _environment_for(virtual: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS", "MAKEFLAGS", "MAKELEVEL")
    }
    path = os.pathsep.join([str(virtual / "bin"), kept.get("PATH", os.defpath)])
    return kept | {"VIRTUAL_ENV": str(virtual), "PATH": path}
