"""A story's attempts, from the steps that they were made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ringfence.loop.report.model import Attempt, AttemptKind, CriterionVerdict
from ringfence.loop.report.parts import answers_of, checks_of, turn_of, verdict_of
from ringfence.loop.report.statistics import stat_of
from ringfence.loop.repository import LoopRepository
from ringfence.loop.store.rows import EventRow, StepRow, StoryRow

_PARTS: Mapping[AttemptKind, tuple[str, ...]] = {
    "tests": ("tests", "red"),
    "code": ("code", "checks", "review", "judgement"),
}
_ROLES: Mapping[AttemptKind, str] = {"tests": "test_writer", "code": "implementor"}
_MOST_COMPLAINTS = 50
_MOST_NAMES = 200


async def attempts_of(
    repository: LoopRepository | None,
    row: StoryRow,
    criteria: Sequence[str],
    steps: Sequence[StepRow],
    events: Sequence[EventRow],
) -> tuple[Attempt, ...]:
    """All attempts, in their order.

    Args:
        repository: Knows what each changed; None: nobody does any more.
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
        base = row.base if generation == row.generation else None
        tests = _last_tests(own)
        for kind, number in _begun(own):
            attempt = _attempt(kind, number, generation, own, criteria, colours)
            before = base if kind == "tests" else tests
            found.append(replace(attempt, stat=await stat_of(repository, before, attempt.commit)))
        if (
            generation < row.generation
            and found
            and found[-1].kind == "code"
            and found[-1].state == "accepted"
        ):
            found[-1] = _taken_back(found[-1], next(anew, None))
    return tuple(found)


def _begun(own: Mapping[str, StepRow]) -> Iterator[tuple[AttemptKind, int]]:
    kinds: tuple[AttemptKind, ...] = ("tests", "code")
    for kind in kinds:
        numbers = (name.split(".") for name in own)
        for number in sorted(int(parts[1]) for parts in numbers if parts[0] == kind and len(parts) == 2):
            yield kind, number


def _last_tests(own: Mapping[str, StepRow]) -> str | None:
    made = [step for name, step in own.items() if name.startswith("tests.") and name.endswith(".commit")]
    return max(made, key=lambda step: step.attempt).result.get("commit") if made else None


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
    verdict, feedback = verdict_of(parts.get("judgement"), criteria)
    return Attempt(
        kind=kind,
        generation=generation,
        number=number,
        state="rejected" if rejected is not None else "accepted" if is_over else "under way",
        turns=tuple(turn_of(step) for step in parts.values() if step is not None),
        checks=checks_of(gate, colours.next(number) if kind == "code" and gate is not None else {}),
        review=answers_of(parts.get("review")),
        verdict=verdict,
        feedback=feedback,
        complaints=tuple(map(str, why.get("complaints") or ()))[:_MOST_COMPLAINTS],
        commit=made.get("commit"),
        patch=why.get("patch"),
        files=tuple(map(str, made.get("files") or ()))[:_MOST_NAMES],
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
