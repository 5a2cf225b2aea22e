"""Formats a check's report for agents: of limited length, failures first, with a note about omissions."""

from collections import Counter

from ringfence.check.baseline import Expected, new_failures
from ringfence.check.report import Check, Outcome, Report, TestResult

_LEAST_DETAIL = 300
_OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "error", "skipped")
_MAX_IDS = 50


def feedback(
    check: Check,
    report: Report,
    baseline: Report | None = None,
    *,
    expected: Expected | None = None,
    max_chars: int = 8000,
) -> str:
    """What went wrong in a check, in at most `max_chars` characters; empty: nothing did.

    Args:
        check: What was run.
        report: What came of it.
        baseline: What was red before is only counted.
        expected: Tests that must have been run; None: whichever.
        max_chars: Bound of the text, 500 at least.
    """
    failing, gone = new_failures(report, baseline), (expected or Expected()).missing(report, baseline)
    old = len(report.red()) - sum(each.id in report.results for each in failing)
    parts = [_head(check, report, failing)] if failing or gone or not report.is_complete else []
    if not parts:
        return ""
    parts += [f"Not complete: {problem}" for problem in report.problems[:5]]
    if gone:
        parts.append(_listed(f"{len(gone)} tests are not run any more, or skipped now", gone))
    if old:
        parts.append(f"({old} more were red before and are not counted.)")
    text = "\n".join(parts)
    text = text[: max_chars // 2] + ("\n[cut]" if len(text) > max_chars // 2 else "")
    text += _details(failing, max_chars - len(text) - 200)
    if not failing and not gone and report.output and not report.shows_own_tests:
        room = max(0, max_chars - len(text) - 100)
        text += f"\n\nThe end of its output:\n{report.output[-room:] if room else ''}"
    return text[:max_chars]


def summary(check: Check, report: Report, *, max_chars: int = 8000) -> str:
    """Summarise a check's report for reviewer and judge, in at most `max_chars` characters.

    Where the runner's report is read, it is made of that: the counts, and the tests that did not pass. The runner's own
    output also has the tests that are run to find out whether the runner can be believed. Of a command of which only
    the exit code is known it is the code and the end of the output.
    """
    if report.runner is None:
        text = f"{check.command}: {report.end}\n{report.output}"
        return (
            text
            if len(text) <= max_chars
            else f"{check.command}: {report.end}\n{_tail(report.output, max_chars - 500)}"
        )
    counts = Counter(each.outcome for each in report.results.values())
    counted = (
        ", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES if counts[outcome]) or "no tests"
    )
    is_complete = "complete" if report.is_complete else f"not complete: {'; '.join(report.problems)}"
    rest = [f"- {each.outcome}: {each.id}" for each in report.results.values() if each.outcome != "passed"]
    return "\n".join([f"{check.command}: {counted}; the report is {is_complete}", *rest])[:max_chars]


def _head(check: Check, report: Report, failing: list[TestResult]) -> str:
    count = f"{len(failing)} new failures among {len(report.results)} results"
    return f"{check.name} ({check.command}): {count}, {report.end}."


def _listed(title: str, names: list[str]) -> str:
    more = f"\n- and {len(names) - _MAX_IDS} more" if len(names) > _MAX_IDS else ""
    return f"{title}:\n" + "\n".join(f"- {name}" for name in names[:_MAX_IDS]) + more


def _details(failing: list[TestResult], room: int) -> str:
    """As many failures as fit, each with at least the end of its text."""
    text, shown = "", 0
    for number, each in enumerate(failing):
        share = max(_LEAST_DETAIL, (room - len(text)) // max(1, min(5, len(failing) - number)))
        part = f"\n\n## {each.id} ({each.outcome})\n{_tail(each.detail.strip(), share)}"
        if len(text) + len(part) > room:
            break
        text, shown = text + part, shown + 1
    if shown < len(failing):
        names = ", ".join(each.id for each in failing[shown:])
        note = f"\n\n[{len(failing) - shown} more failures without their text: {names}"
        text += note[: max(80, room - len(text))] + "]"
    return text


def _tail(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"[... {len(text) - most} characters cut ...]\n{text[-most:]}"
