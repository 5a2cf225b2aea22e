"""A story's attempts and stages, from the steps that they were made of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringfence.loop.report.model import (
    STAGES,
    Answer,
    Attempt,
    AttemptKind,
    CheckResult,
    CriterionVerdict,
    Evidence,
    Turn,
    Used,
)
from ringfence.loop.store.rows import EventRow, StepRow, StoryRow

_PARTS: Mapping[AttemptKind, tuple[str, ...]] = {
    "tests": ("tests", "red"),
    "code": ("code", "checks", "review", "judgement"),
}
_ROLES: Mapping[AttemptKind, str] = {"tests": "test_writer", "code": "implementor"}
_STEPS = {"code": "code", "checks": "checks", "review": "review", "verdict": "judgement"}
_OUTCOMES = ("passed", "failed", "error", "skipped")
OK, NO, ON = "ok", "no", "..."
_MAX_COMPLAINTS = 50
_MAX_NAMES = 200
_MAX_EVIDENCE = 20
_MAX_CRITERIA = 200
_TEXT_CHARS = 4_000


def attempts_of(
    row: StoryRow, criteria: Sequence[str], steps: Sequence[StepRow], events: Sequence[EventRow]
) -> tuple[Attempt, ...]:
    """All attempts, in their order, without the diffs of rejected work.

    Args:
        row: The story.
        criteria: Its criteria.
        steps: Its steps.
        events: Its events.
    """
    colours = _Colours(events)
    anew = iter(
        [each for each in events if each.type == "story.retried" and each.data.get("role") == "merge"]
    )
    found = list[Attempt]()
    for generation in sorted({step.generation for step in steps}):
        own = {step.name: step for step in steps if step.generation == generation}
        found += [_attempt(kind, number, generation, own, criteria, colours) for kind, number in _begun(own)]
        if (
            generation < row.generation
            and found
            and (found[-1].kind, found[-1].state) == ("code", "accepted")
        ):
            found[-1] = _taken_back(found[-1], next(anew, None))
    return tuple(found)


def _begun(own: Mapping[str, StepRow]) -> Iterator[tuple[AttemptKind, int]]:
    for kind in _PARTS:
        numbers = (name.split(".") for name in own)
        for number in sorted(int(parts[1]) for parts in numbers if parts[0] == kind and len(parts) == 2):
            yield kind, number


def _attempt(
    kind: AttemptKind,
    number: int,
    generation: int,
    own: Mapping[str, StepRow],
    criteria: Sequence[str],
    colours: "_Colours",
) -> Attempt:
    parts = {name: own.get(f"{name}.{number}") for name in _PARTS[kind]}
    gate = parts["red" if kind == "tests" else "checks"]
    commit = own.get(f"{kind}.{number}.commit")
    rejected = own.get(f"rejected.{_ROLES[kind]}.{number}")
    made = commit.result if commit is not None else {}
    why = rejected.result if rejected is not None else {}
    last = parts["red" if kind == "tests" else "judgement"]
    is_over = last is not None and last.outcome is not None
    verdict, feedback = _verdict_of(parts.get("judgement"), criteria)
    return Attempt(
        kind=kind,
        generation=generation,
        number=number,
        state="rejected" if rejected is not None else "accepted" if is_over else "under way",
        turns=tuple(_turn_of(step) for step in parts.values() if step is not None),
        checks=_checks_of(gate, colours.next(number) if kind == "code" and gate is not None else {}),
        review=_answers_of(parts.get("review")),
        verdict=verdict,
        feedback=feedback,
        complaints=tuple(map(str, why.get("complaints") or ()))[:_MAX_COMPLAINTS],
        commit=made.get("commit"),
        patch=why.get("patch"),
        files=tuple(map(str, made.get("files") or ()))[:_MAX_NAMES],
        stat=None,
    )


def _taken_back(attempt: Attempt, event: EventRow | None) -> Attempt:
    """An attempt that was accepted, but did not fit what came onto the branch meanwhile; or was begun anew by hand."""
    told = event.data.get("complaints") if event is not None else None
    return replace(
        attempt, state="rejected", complaints=tuple(map(str, told or ("the story was begun anew",)))
    )


class _Colours:
    """What each check of each code attempt was taken for, as the events tell it: in the order of the attempts."""

    def __init__(self, events: Sequence[EventRow]) -> None:
        self._told = [event.data for event in events if event.type == "checks.completed"]

    def next(self, number: int) -> Mapping[str, str]:
        """Of the next attempt of this number."""
        for place, data in enumerate(self._told):
            if data.get("attempt") == number:
                del self._told[place]
                checks = data.get("checks")
                return checks if isinstance(checks, dict) else {}
        return {}


def unjudged(criteria: Sequence[str]) -> tuple[CriterionVerdict, ...]:
    """Criteria of which nobody has said anything."""
    return tuple(
        CriterionVerdict(number, text, None, "", ()) for number, text in enumerate(criteria, start=1)
    )


def _cut(text: str, max_chars: int = _TEXT_CHARS) -> str:
    """A text, or its beginning and how much more there is."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}... ({len(text) - max_chars:,} more characters)"


def _turn_of(step: StepRow) -> Turn:
    """A step as one run."""
    seconds = 0.0 if step.ended_ms is None else max(0, step.ended_ms - step.began_ms) / 1000
    answer = step.result.get("answer")
    words = answer.get("summary") if isinstance(answer, dict) else None
    used = Used(step.tries if step.role else 0, step.tokens, step.cost_usd, seconds)
    return Turn(
        step.name, step.role, step.model, step.run_id, step.outcome, step.tries, used, _cut(str(words or ""))
    )


def _checks_of(step: StepRow | None, colours: Mapping[str, str]) -> tuple[CheckResult, ...]:
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


def _answers_of(step: StepRow | None) -> tuple[Answer, ...]:
    """The reviewer's answers."""
    answer = step.result.get("answer") if step is not None else None
    questions = answer.get("questions", ()) if isinstance(answer, dict) else ()
    return tuple(
        Answer(str(each["id"]), each["answer"] is True, _cut(str(each["evidence"]))) for each in questions
    )


def _verdict_of(step: StepRow | None, criteria: Sequence[str]) -> tuple[tuple[CriterionVerdict, ...], str]:
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
            _cut(str(said[number]["reason"])) if number in said else "",
            tuple(_evidence(each) for each in said[number]["evidence"][:_MAX_EVIDENCE])
            if number in said
            else (),
        )
        for number in sorted({*texts, *said})[:_MAX_CRITERIA]
    ]
    return tuple(found), _cut(str(verdict.get("feedback") or ""))


def _evidence(given: Mapping[str, Any]) -> Evidence:
    if "file" in given:
        return Evidence(file=str(given["file"]).removeprefix("./"), line=int(given["line"]))
    return Evidence(test=str(given["test"]))


def stages(row: StoryRow, steps: Sequence[StepRow]) -> tuple[str, ...]:
    """For each of `STAGES`: `ok`, `no` where it was rejected, `...` while it goes on; empty: not begun.

    Args:
        row: The story.
        steps: Its own.
    """
    own = {step.name: step for step in steps if step.generation == row.generation}
    code = _code(row, own)
    return (_tests(row, own), *(code[name] for name in STAGES[1:]))


def _tests(row: StoryRow, own: Mapping[str, StepRow]) -> str:
    if row.tests is not None:
        return OK
    last = _last_tests(own)
    if not last:
        return ""
    return NO if f"rejected.test_writer.{last}" in own else ON


def tests_attempt(row: StoryRow, steps: Sequence[StepRow]) -> int:
    """The present attempt at a story's tests, from 1; 0: none was begun.

    Args:
        row: The story.
        steps: Its own.
    """
    return _last_tests({step.name: step for step in steps if step.generation == row.generation})


def _last_tests(own: Mapping[str, StepRow]) -> int:
    begun = (name for name in own if name.startswith("tests.") and not name.endswith(".commit"))
    return max((int(name.split(".")[1]) for name in begun), default=0)


def _code(row: StoryRow, own: Mapping[str, StepRow]) -> dict[str, str]:
    found = {stage: own.get(f"{name}.{row.attempt}") for stage, name in _STEPS.items()}
    told = {
        stage: "" if step is None else ON if step.outcome is None else OK for stage, step in found.items()
    }
    if f"rejected.implementor.{row.attempt}" in own:
        reached = [stage for stage in _STEPS if told[stage]]
        if reached:
            told[reached[-1]] = NO
    return told
