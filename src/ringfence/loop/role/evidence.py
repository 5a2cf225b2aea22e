"""Whether what a judge says holds, as far as code can tell: it fails closed.

What is found here is a fault of the judge, which is asked again. The code that it judged is neither passed nor blamed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ringfence.loop.role.answers import CodeLine, CriterionVerdict, PassedTest, Verdict
from ringfence.loop.role.blocks import plain

LinesOf = Callable[[str], int | None]
"""How many lines a file of the candidate has; None: there is no such file, or it is no text."""


class HasOutcome(Protocol):
    """A test's result."""

    @property
    def outcome(self) -> str:
        """`passed`, `failed`, `error` or `skipped`."""


def check_evidence(
    verdict: Verdict, lines_of: LinesOf, test_results: Mapping[str, HasOutcome], *, criteria: int
) -> list[str]:
    """What is wrong with a verdict; empty: it counts.

    Args:
        verdict: The judge's.
        lines_of: Of the candidate. It is asked only for relative paths without dots.
        test_results: Of the candidate's last run, by id.
        criteria: How many the story has.
    """
    return [
        *_misnumbered(verdict, criteria),
        *_contradictions(verdict),
        *_unfounded(verdict, lines_of, test_results),
    ]


def is_passed(verdict: Verdict) -> bool:
    """Whether a verdict that counts lets the attempt pass: it says so, of the whole and of each criterion."""
    return verdict.overall == "pass" and bool(verdict.criteria) and _is_all_met(verdict)


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


def _unfounded(verdict: Verdict, lines_of: LinesOf, tests: Mapping[str, HasOutcome]) -> Iterator[str]:
    for each in verdict.criteria:
        if each.verdict == "met":
            yield from _of_criterion(each, lines_of, tests)


def _of_criterion(met: CriterionVerdict, lines_of: LinesOf, tests: Mapping[str, HasOutcome]) -> Iterator[str]:
    if not met.evidence:
        yield f"criterion {met.criterion} is met, and nothing shows it"
    for evidence in met.evidence:
        why = _no_line(evidence, lines_of) if isinstance(evidence, CodeLine) else _no_test(evidence, tests)
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


def _no_test(evidence: PassedTest, tests: Mapping[str, HasOutcome]) -> str | None:
    result = tests.get(evidence.test)
    if result is None:
        return f"there is no test {_shown(evidence.test)} among those that ran"
    return (
        None
        if result.outcome == "passed"
        else f"the test {_shown(evidence.test)} did not pass: {result.outcome}"
    )


def _shown(text: str) -> str:
    return repr(plain(text)[:200])
