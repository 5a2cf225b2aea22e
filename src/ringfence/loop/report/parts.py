"""The parts of an attempt as a report shows them: runs, checks, answers and verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.loop.report.model import Answer, CheckResult, CriterionVerdict, Turn, Used
from ringfence.loop.store.rows import StepRow

_OUTCOMES = ("passed", "failed", "error", "skipped")
_MOST_EVIDENCE = 20
_MOST_CRITERIA = 200
_TEXT_CHARS = 4_000


def cut(text: str, most_chars: int = _TEXT_CHARS) -> str:
    """A text, or its beginning and how much more there is."""
    if len(text) <= most_chars:
        return text
    return f"{text[:most_chars]}... ({len(text) - most_chars:,} more characters)"


def turn_of(step: StepRow) -> Turn:
    """A step as one run."""
    seconds = 0.0 if step.ended_ms is None else max(0, step.ended_ms - step.began_ms) / 1000
    answer = step.result.get("answer")
    words = answer.get("summary") if isinstance(answer, dict) else None
    used = Used(step.tries if step.role else 0, step.tokens, step.cost_usd, seconds)
    return Turn(
        step.name, step.role, step.model, step.run_id, step.outcome, step.tries, used, cut(str(words or ""))
    )


def checks_of(step: StepRow | None, colours: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """What the checks of a gate came to."""
    reports = step.result.get("reports") if step is not None else None
    if not isinstance(reports, dict):
        return ()
    return tuple(
        CheckResult(str(name), str(colours.get(name, "")), _words(report)) for name, report in reports.items()
    )


def _words(report: Mapping[str, Any]) -> str:
    counts = Counter(str(each.get("outcome")) for each in report.get("results", {}).values())
    told = [f"{counts[name]} {name}" for name in _OUTCOMES if counts[name]]
    if not told:
        ended, code = report.get("ended_by"), report.get("exit_code")
        told = [f"exit code {code}" if ended == "exit" else f"ended by {ended}"]
    if report.get("results") and not report.get("is_complete"):
        told.append("not complete")
    return ", ".join(told)


def answers_of(step: StepRow | None) -> tuple[Answer, ...]:
    """The reviewer's answers."""
    answer = step.result.get("answer") if step is not None else None
    questions = answer.get("questions", ()) if isinstance(answer, dict) else ()
    return tuple(
        Answer(str(each["id"]), each["answer"] is True, cut(str(each["evidence"]))) for each in questions
    )


def verdict_of(step: StepRow | None, criteria: Sequence[str]) -> tuple[tuple[CriterionVerdict, ...], str]:
    """The judge's verdict on each criterion, and its words for the next attempt."""
    answer = step.result.get("answer") if step is not None else None
    verdict = answer.get("verdict") if isinstance(answer, dict) else None
    if not isinstance(verdict, dict):
        return (), ""
    said = {each["criterion"]: each for each in verdict["criteria"]}
    texts = dict(enumerate(criteria, start=1))
    found = [
        CriterionVerdict(
            number,
            texts.get(number, ""),
            said[number]["verdict"] if number in said else None,
            cut(str(said[number]["reason"])) if number in said else "",
            tuple(_evidence(each) for each in said[number]["evidence"][:_MOST_EVIDENCE])
            if number in said
            else (),
        )
        for number in sorted({*texts, *said})[:_MOST_CRITERIA]
    ]
    return tuple(found), cut(str(verdict.get("feedback") or ""))


def _evidence(said: Mapping[str, Any]) -> str:
    return f"{said['file']}:{said['line']}" if "file" in said else str(said["test"])
