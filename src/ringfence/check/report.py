"""A check, and the report of what it came to: made on the host from what a sandbox sent, all of it bounded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.sandbox.result import OnOutput


Kind = Literal["test", "type", "lint", "other"]
Outcome = Literal["passed", "failed", "error", "skipped"]

RED: frozenset[Outcome] = frozenset({"failed", "error"})
"""Outcomes that are not to be accepted; `skipped` is neither red nor green."""


@frozen
class Check:
    """A command that says by its exit code, or by a report of a known runner, whether all is well."""

    kind: Kind
    name: str
    command: str
    """Shell command, run in the workspace."""
    timeout_s: float = 600.0
    runner: str | None = None
    """Whose report is read: `pytest`, `unittest`, `node`, `go`, `cargo` or `maven`. None: only the exit code counts."""
    on_output: "OnOutput | None" = None
    """Takes the command's output as it comes."""
    only: str | None = None
    """Id of the one test function that is run, in all its cases. None: all tests are."""


@frozen
class Cause:
    """Why a test failed, as far as its runner tells."""

    type: str
    """Name of the exception, or the compiler's code for the error."""
    message: str = ""
    name: str | None = None
    """What could not be imported or found."""
    file: str | None = None
    """Where it broke, relative to the workspace where it lies there."""


@frozen
class TestResult:
    """What one test came to. A file that could not be loaded is a result, too: its id is its path."""

    __test__ = False

    id: str
    outcome: Outcome
    file: str | None = None
    """Relative to the workspace, where the runner tells."""
    detail: str = ""
    """The failure's text, cut in its middle."""
    cause: Cause | None = None


@frozen
class Report:
    """What a check came to. Only a complete one may be believed green."""

    results: Mapping[str, TestResult]
    is_complete: bool
    """Whether all tests that were found were run and reported, in keeping with the exit code and the canary."""
    exit_code: int | None
    ended_by: str
    """As of the sandbox's command: `exit`, `timeout`, `memory`, ..."""
    output: str = ""
    """What the command printed: head and tail."""
    problems: tuple[str, ...] = ()
    """Why it is not complete, and what else is odd."""
    altered: tuple[str, ...] = ()
    """Functions of the runner, and files with tests, that were others at the end than at the beginning."""
    altered_by_project: tuple[str, ...] = ()
    """Those of the functions that code of the workspace took the place of; known of pytest and unittest."""
    runner: str | None = None
    """Whose report was read; None: only the exit code is known."""
    shows_own_tests: bool = False
    """Whether tests of ours ran among the project's, so that the output is for the record and not for agents."""

    @property
    def is_green(self) -> bool:
        """Whether it is complete, something was run, and nothing of it is red."""
        return self.is_complete and bool(self.results) and not self.red()

    def red(self) -> list[TestResult]:
        """What failed, by id."""
        return sorted(
            (each for each in self.results.values() if each.outcome in RED), key=lambda each: each.id
        )
