"""A story's attempts and stages, from the steps that they were made of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringfence.loop.report.model import (
    Answer,
    Attempt,
    AttemptKind,
    CheckResult,
    CriterionVerdict,
    Evidence,
    Turn,
    Used,
)
from ringfence.loop.rows import CODE, TESTS, EventRow, StepRow, StoryRow

_PARTS: Mapping[AttemptKind, tuple[str, ...]] = {"tests": TESTS, "code": CODE}
_ROLES: Mapping[AttemptKind, str] = {"tests": "test_writer", "code": "implementor"}
_OUTCOMES = ("passed", "failed", "error", "skipped")
_OK, _NO, _ON = "ok", "no", "..."
_MAX_NAMES = 200


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
    checked = [event.data for event in events if event.type == "checks.completed"]
    anew = (
        event.data for event in events if event.type == "story.retried" and event.data.get("role") == "merge"
    )
    found = list[Attempt]()
    for generation in sorted({step.generation for step in steps}):
        own = {step.name: step for step in steps if step.generation == generation}
        found += [_attempt(kind, number, generation, own, criteria, checked) for kind, number in _begun(own)]
        if (
            generation < row.generation
            and found
            and (found[-1].kind, found[-1].state) == ("code", "accepted")
        ):
            # It was accepted, but did not fit what came onto the branch meanwhile, or was begun anew by hand.
            why = next(anew, {}).get("complaints") or ("the story was begun anew",)
            found[-1] = replace(found[-1], state="rejected", complaints=tuple(map(str, why)))
    return tuple(found)


def _begun(own: Mapping[str, StepRow]) -> Iterator[tuple[AttemptKind, int]]:
    for kind in _PARTS:
        names = (name.split(".") for name in own)
        for number in sorted(int(parts[1]) for parts in names if parts[0] == kind and len(parts) == 2):
            yield kind, number


def _attempt(
    kind: AttemptKind,
    number: int,
    generation: int,
    own: Mapping[str, StepRow],
    criteria: Sequence[str],
    checked: list[Mapping[str, Any]],
) -> Attempt:
    parts = {name: own[f"{name}.{number}"] for name in _PARTS[kind] if f"{name}.{number}" in own}
    made = _result(own.get(f"{kind}.{number}.commit"))
    rejected = own.get(f"rejected.{_ROLES[kind]}.{number}")
    why = _result(rejected)
    last = parts.get(_PARTS[kind][-1])
    is_over = last is not None and last.outcome is not None
    gate = parts.get("red" if kind == "tests" else "checks")
    verdict = _answer(parts.get("judgement")).get("verdict")
    return Attempt(
        kind=kind,
        generation=generation,
        number=number,
        state="rejected" if rejected is not None else "accepted" if is_over else "under way",
        turns=tuple(map(_turn_of, parts.values())),
        checks=_checks_of(gate, _take_colours(checked, number) if kind == "code" and gate else {}),
        review=tuple(
            Answer(each["id"], each["answer"], each["evidence"])
            for each in _answer(parts.get("review")).get("questions", ())
        ),
        verdict=criteria_of(criteria, verdict) if verdict else (),
        feedback=verdict["feedback"] if verdict else "",
        complaints=tuple(why.get("complaints", ())),
        commit=made.get("commit"),
        patch=why.get("patch"),
        files=tuple(made.get("files", ()))[:_MAX_NAMES],
        left_out=tuple(made.get("left_out", ()))[:_MAX_NAMES],
        configuration=tuple(made.get("configuration", ()))[:_MAX_NAMES],
        stat=None,
    )


def _result(step: StepRow | None) -> Mapping[str, Any]:
    return step.result if step is not None else {}


def _answer(step: StepRow | None) -> Mapping[str, Any]:
    return _result(step).get("answer") or {}


def _take_colours(checked: list[Mapping[str, Any]], number: int) -> Mapping[str, str]:
    """What each check of the next attempt with this number was taken for: events come in the order of attempts."""
    for position, data in enumerate(checked):
        if data["attempt"] == number:
            colours: Mapping[str, str] = checked.pop(position)["checks"]
            return colours
    return {}


def _turn_of(step: StepRow) -> Turn:
    """A step as one run."""
    seconds = 0.0 if step.ended_ms is None else max(0, step.ended_ms - step.began_ms) / 1000
    used = Used(step.tries if step.role else 0, step.tokens, step.cost_usd, seconds)
    words = _answer(step).get("summary") or ""
    return Turn(step.name, step.role, step.model, step.run_id, step.outcome, step.tries, used, words)


def _checks_of(step: StepRow | None, colours: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """What the checks of a gate came to."""
    reports = _result(step).get("reports", {})
    return tuple(CheckResult(name, colours.get(name, ""), _words(report)) for name, report in reports.items())


def _words(report: Mapping[str, Any]) -> str:
    counts = Counter(each["outcome"] for each in report["results"].values())
    if not counts:
        return (
            f"exit code {report['exit_code']}"
            if report["ended_by"] == "exit"
            else f"ended by {report['ended_by']}"
        )
    words = [f"{counts[name]} {name}" for name in _OUTCOMES if counts[name]]
    return ", ".join([*words, *([] if report["is_complete"] else ["not complete"])])


def criteria_of(criteria: Sequence[str], verdict: Mapping[str, Any] | None) -> tuple[CriterionVerdict, ...]:
    """A story's criteria with what the judge said of each; None: nobody has said anything."""
    texts = dict(enumerate(criteria, start=1))
    given = {each["criterion"]: each for each in verdict["criteria"]} if verdict else {}
    return tuple(
        _criterion(number, texts.get(number, ""), given.get(number)) for number in sorted({*texts, *given})
    )


def _criterion(number: int, text: str, given: Mapping[str, Any] | None) -> CriterionVerdict:
    if given is None:
        return CriterionVerdict(number, text, None, "", ())
    evidence = tuple(Evidence(**each) for each in given["evidence"])
    return CriterionVerdict(number, text, given["verdict"], given["reason"], evidence)


def stages(row: StoryRow, steps: Sequence[StepRow]) -> tuple[str, ...]:
    """For each of `STAGES`: `ok`, `no` where it was rejected, `...` while it goes on; empty: not begun.

    Args:
        row: The story.
        steps: Its own.
    """
    own = {step.name: step for step in steps if step.generation == row.generation}
    last = tests_attempt(row, steps)
    is_rejected = f"rejected.test_writer.{last}" in own
    tests = _OK if row.tests is not None else "" if not last else _NO if is_rejected else _ON
    code = [own.get(f"{name}.{row.attempt}") for name in CODE]
    found = ["" if step is None else _ON if step.outcome is None else _OK for step in code]
    if f"rejected.implementor.{row.attempt}" in own and any(found):
        found[max(position for position, stage in enumerate(found) if stage)] = _NO
    return tests, *found


def tests_attempt(row: StoryRow, steps: Sequence[StepRow]) -> int:
    """The present attempt at a story's tests, from 1; 0: none was begun.

    Args:
        row: The story.
        steps: Its own.
    """
    own = {step.name: step for step in steps if step.generation == row.generation}
    return max((number for kind, number in _begun(own) if kind == "tests"), default=0)
