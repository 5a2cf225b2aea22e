"""How a story's present attempt stands, stage by stage, from its row and the names of its steps."""

from collections.abc import Mapping, Sequence

from ringfence.loop.report.model import STAGES
from ringfence.loop.store.rows import StepRow, StoryRow

OK, NO, ON = "ok", "no", "..."
_STEPS = {"code": "code", "checks": "checks", "review": "review", "verdict": "judgement"}


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
