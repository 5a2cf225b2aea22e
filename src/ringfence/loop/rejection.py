"""Rejected attempts: their work is kept aside, the next one is told why, and a loop that gets nowhere ends."""

from collections.abc import Sequence

from ringfence.loop.loop import Loop
from ringfence.loop.outcome import Rejected, Stop
from ringfence.loop.rows import REJECTED, StepRow, StoryRow, code_steps, describe_rejection, tests_steps
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopState
from ringfence.loop.trees import Trees

_SHOWN = 20
_SHOWN_CHARS = 500
_MOST = 50
_MOST_CHARS = 16_000
"""Of one attempt's complaints together."""


def rejections(loop: Loop, row: StoryRow, role: RoleName) -> list[StepRow]:
    """What was said of a role's earlier attempts at a story, in order."""
    steps = loop.store.steps(row.id, generation=row.generation)
    return [step for step in steps if step.name.startswith(f"rejected.{role}.")]


def rejections_by_person(loop: Loop, row: StoryRow) -> list[str]:
    """Why a person rejected the story after it had been accepted, the oldest reason first."""
    steps = [step for step in loop.store.steps(row.id) if step.name == REJECTED]
    return [describe_rejection(step.result) for step in steps if step.outcome is not None]


def reason_of(rejection: StepRow) -> str:
    """The first complaint, as a story's reason."""
    return str(rejection.result["complaints"][0])[:_SHOWN_CHARS]


async def reject(
    loop: Loop, trees: Trees, row: StoryRow, role: RoleName, attempt: int, rejected: Rejected
) -> StepRow:
    """Keep why an attempt was turned down, and its work as a patch.

    Raises:
        Stop: Attempt after attempt is turned down for the same reason.
    """
    complaints, base = bound_complaints(rejected.complaints), row.tests if role == "implementor" else row.base
    patch = None
    if rejected.commit is not None and base is not None:
        patch = await trees.keep_rejected(row, base, rejected.commit, role=role, attempt=attempt)
    name = f"rejected.{role}.{attempt}"
    result = {
        "complaints": complaints,
        "patch": None if patch is None else str(patch),
        "commit": rejected.commit,
    }
    kind = "story.failed" if attempt >= loop.settings.attempts else "story.retried"
    of = tests_steps(attempt) if role == "test_writer" else code_steps(attempt)
    shown = [each[:_SHOWN_CHARS] for each in complaints[:_SHOWN]]
    with loop.store.transaction():
        step = loop.store.keep_step(row.key(name), outcome="rejected", result=result, attempt=attempt)
        loop.add_event(row, name, kind, of=of, attempt=attempt, role=role, complaints=shown)
    _check_progress(loop)
    return step


def bound_complaints(complaints: Sequence[str]) -> list[str]:
    """Complaints as the next attempt is told them: what an agent made can be as long as it likes."""
    found, room = list[str](), _MOST_CHARS
    for number, each in enumerate(complaints):
        if number == _MOST or room <= 0:
            return [*found, f"and {len(complaints) - number} more complaints, which are left out"]
        shown = each if len(each) <= room else f"{each[:room]}\n[{len(each) - room} characters are left out]"
        found.append(shown)
        room -= len(shown)
    return found


def _check_progress(loop: Loop) -> None:
    """End the loop if attempt after attempt ends with the very same complaints.

    Those of a round count anew, so that a loop that is resumed gets further. One story alone that uses up its attempts
    so is skipped: other stories may fare better.

    Raises:
        Stop: They do.
    """
    most, begun_ms = loop.settings.limits.no_progress, loop.store.loop.begun_ms
    last = [
        step for step in loop.store.steps() if step.name.startswith("rejected.") and step.began_ms >= begun_ms
    ][-most:]
    is_given_up = last[-1].attempt >= loop.settings.attempts and len({step.story for step in last}) == 1
    if len(last) < most or is_given_up:
        return
    if all(step.result["complaints"] == last[0].result["complaints"] for step in last):
        raise Stop(
            LoopState.LIMIT,
            f"no progress: the last {most} attempts ended with the same complaint: {reason_of(last[-1])}",
        )
