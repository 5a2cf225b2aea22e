"""Defines the judge, which decides about an attempt by criterion, and checks its evidence; that check fails closed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from pydantic import Field

from ringfence.loop.role.answer import ITEMS_LIMIT, Answer, Line, Prose, Text
from ringfence.loop.role.base import Role
from ringfence.loop.role.blocks import plain

LinesOf = Callable[[str], int | None]
"""Returns the number of lines in a file of the candidate; None if there is no such file, or it is not text."""


class CodeLine(Answer):
    """A place in the candidate."""

    file: Line
    line: int


class PassedTest(Answer):
    """A test that ran and passed."""

    test: Line


class CriterionVerdict(Answer):
    """The verdict on one criterion."""

    criterion: int = Field(description="Its number, counted from 1.")
    verdict: Literal["met", "not_met", "unclear"]
    evidence: list[CodeLine | PassedTest] = Field(max_length=ITEMS_LIMIT)
    reason: Prose


class Verdict(Answer):
    """The judge's answer, which is not sufficient by itself: see `check_evidence`."""

    criteria: list[CriterionVerdict] = Field(max_length=ITEMS_LIMIT)
    overall: Literal["pass", "reject"]
    feedback: Text = Field(description="For the next attempt; empty if there is none.")


class Judge(Role[Verdict]):
    """The role. As an agent CLI it has no tool that runs or writes (`run_settings`)."""

    name = "judge"
    answer = Verdict
    markers = ("overall", "criteria")
    shown = (
        "story", "criteria", "details", "checks", "results", "notes", "review", "diff", "tests", "plan", "guides",
    )  # fmt: skip


def check_evidence(
    verdict: Verdict, lines_of: LinesOf, outcomes: Mapping[str, str], *, criteria: int
) -> list[str]:
    """Return the problems of a verdict that code can detect; empty: the verdict counts.

    A problem is a fault of the judge, whose run is retried. The code that it judged is neither passed nor rejected.

    Args:
        verdict: The judge's verdict.
        lines_of: Counts lines in the candidate. It is called only with relative paths without dots.
        outcomes: How each test of the candidate's last run ended, by its id: `passed`, `failed`, `error` or `skipped`.
        criteria: The number of the story's criteria.
    """
    return [
        *_misnumbered(verdict, criteria),
        *_contradictions(verdict),
        *_unfounded(verdict, lines_of, outcomes),
    ]


def is_passed(verdict: Verdict) -> bool:
    """Return whether a valid verdict accepts the attempt, as a whole and by each criterion."""
    return verdict.overall == "pass" and bool(verdict.criteria) and _is_all_met(verdict)


def complaints_of(verdict: Verdict) -> list[str]:
    """Return the complaints for the next attempt; empty if the attempt passes. The last one ends with the feedback."""
    if is_passed(verdict):
        return []
    complaints = [
        f"criterion {each.criterion} is {each.verdict.replace('_', ' ')}: {each.reason}"
        for each in verdict.criteria
        if each.verdict != "met"
    ]
    if complaints and verdict.feedback:
        complaints[-1] += f"\n\nThe judge's feedback: {verdict.feedback}"
    elif verdict.feedback:
        complaints = [verdict.feedback]
    return complaints or ["the judge rejected it and gave no reason"]


def _is_all_met(verdict: Verdict) -> bool:
    return all(each.verdict == "met" for each in verdict.criteria)


def _misnumbered(verdict: Verdict, criteria: int) -> Iterator[str]:
    counts = Counter(each.criterion for each in verdict.criteria)
    for number in range(1, criteria + 1):
        if number not in counts:
            yield f"criterion {number} is not judged"
    for number, count in sorted(counts.items()):
        if not 1 <= number <= criteria:
            yield f"criterion {number} is judged, and the story has {criteria}"
        elif count > 1:
            yield f"criterion {number} is judged {count} times"


def _contradictions(verdict: Verdict) -> Iterator[str]:
    if verdict.overall == "pass" and not _is_all_met(verdict):
        yield "the whole is to pass, and not every criterion is met"
    if verdict.overall == "reject" and not verdict.feedback:
        yield "it is rejected, and nothing is said to the next attempt"


def _unfounded(verdict: Verdict, lines_of: LinesOf, outcomes: Mapping[str, str]) -> Iterator[str]:
    for each in verdict.criteria:
        if each.verdict == "met":
            yield from _of_criterion(each, lines_of, outcomes)


def _of_criterion(met: CriterionVerdict, lines_of: LinesOf, outcomes: Mapping[str, str]) -> Iterator[str]:
    if not met.evidence:
        yield f"criterion {met.criterion} is met, and nothing shows it"
    for evidence in met.evidence:
        why = _no_line(evidence, lines_of) if isinstance(evidence, CodeLine) else _no_test(evidence, outcomes)
        if why:
            yield f"criterion {met.criterion}: {why}"


def _no_line(evidence: CodeLine, lines_of: LinesOf) -> str | None:
    path = evidence.file.removeprefix("./")
    shown = _shown(evidence.file)
    if any(part in ("", ".", "..", ".git") for part in path.split("/")) or "\0" in path:
        return f"{shown} is no path of the project"
    lines = lines_of(path)
    if lines is None:
        return f"there is no file {shown}"
    return None if 1 <= evidence.line <= lines else f"{shown} has {lines} lines, and no line {evidence.line}"


def _no_test(evidence: PassedTest, outcomes: Mapping[str, str]) -> str | None:
    outcome = outcomes.get(evidence.test)
    if outcome is None:
        return f"there is no test {_shown(evidence.test)} among those that ran"
    return None if outcome == "passed" else f"the test {_shown(evidence.test)} did not pass: {outcome}"


def _shown(text: str) -> str:
    return repr(plain(text)[:200])
