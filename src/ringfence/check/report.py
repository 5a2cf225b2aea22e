"""Types for a check and its report. Reports are made on the host from what a sandbox sent, every part bounded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.sandbox.result import OnOutput


Kind = Literal["test", "type", "lint", "other"]
Outcome = Literal["passed", "failed", "error", "skipped"]

RED: frozenset[Outcome] = frozenset({"failed", "error"})
"""Outcomes of a test that did not pass; `skipped` is neither red nor green."""
SEVERITY: Mapping[Outcome, int] = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


@frozen
class Check:
    """A shell command that is green or red by its exit code, or by the report of a known test runner."""

    kind: Kind
    name: str
    command: str
    """Shell command, run in the workspace."""
    timeout_s: float = 600.0
    runner: str | None = None
    """The test runner whose report is read: `pytest`, `unittest`, `node`, `go`, `cargo` or `maven`. None: only the
    exit code counts."""
    on_output: "OnOutput | None" = None
    """Called with the command's output as it arrives."""
    only: str | None = None
    """Id of the only test function to run, with all its cases. None: all tests are run."""


@frozen
class Cause:
    """Why a test failed, as far as its runner reports it."""

    type: str
    """Name of the exception, or the compiler's code for the error."""
    message: str = ""
    name: str | None = None
    """The module or symbol that could not be imported or found."""
    file: str | None = None
    """The file that raised the error; relative to the workspace if it is in the workspace."""


@frozen
class TestResult:
    """The outcome of one test. A file that could not be loaded has a result as well: its id is its path."""

    __test__ = False

    id: str
    outcome: Outcome
    file: str | None = None
    """Relative to the workspace; None if the runner does not report it."""
    detail: str = ""
    """The failure's text, truncated in the middle."""
    cause: Cause | None = None


@frozen
class Report:
    """The results of a check. Only a complete report can be green."""

    results: Mapping[str, TestResult]
    is_complete: bool
    """Whether every collected test was run and reported, and the results agree with the exit code and the canary."""
    exit_code: int | None
    ended_by: str
    """How the command ended, as in `ExecResult`: `exit`, `timeout`, `memory`, ..."""
    output: str = ""
    """The command's output, truncated in the middle."""
    problems: tuple[str, ...] = ()
    """Why the report is not complete, and other warnings about it."""
    altered: tuple[str, ...] = ()
    """Functions of the runner, and protected files, that changed during the run: all of them, by their full names."""
    altered_by_project: tuple[str, ...] = ()
    """The altered functions that code of the workspace replaced; only pytest and unittest report them."""
    runner: str | None = None
    """The test runner whose report was read; None: only the exit code is known."""
    run_state: str | None = None
    """State of the whole run of checks if that ended before this check did: `timed_out`, `limit` or `failed`."""
    shows_own_tests: bool = False
    """Whether the output shows Ringfence's own tests (canaries): it is then for the record and not for agents."""

    @property
    def end(self) -> str:
        """How the check ended, for people: `exit code 1`, `ended by timeout`."""
        if self.ended_by == "exit":
            return f"exit code {self.exit_code}"
        return f"ended by {self.run_state or self.ended_by}"

    @property
    def is_green(self) -> bool:
        """Whether the report is complete, has results, and none of them is red."""
        return self.is_complete and bool(self.results) and not self.red()

    def red(self) -> list[TestResult]:
        """Return the red results, sorted by id."""
        return sorted(
            (each for each in self.results.values() if each.outcome in RED), key=lambda each: each.id
        )
