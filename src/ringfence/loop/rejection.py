"""Records rejected attempts, with their work as a patch, and ends a loop that makes no progress."""

import re
from collections.abc import Sequence

from ringfence.loop.exceptions import LoopStopped, Rejected
from ringfence.loop.loop import Loop
from ringfence.loop.role import AuthorRole
from ringfence.loop.rows import MAX_LISTED, REJECTED_BY_PERSON, StepRow, StoryRow, describe_rejection
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopEnd, LoopState
from ringfence.loop.story_commits import StoryCommits

_LISTED_CHARS = 500
_TRACEBACK = re.compile(
    r"^(?:Traceback \(most recent call last\):|E  ).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
"""A traceback in the feedback of a check, which begins the text of each failing test with `## `."""
_MAX_COMPLAINTS = 50
_MAX_CHARS = 16_000
"""Limit for one attempt's complaints together."""


def rejections(loop: Loop, row: StoryRow, role: RoleName) -> list[StepRow]:
    """Return the rejections of a role's earlier attempts at a story, in order."""
    steps = loop.store.steps(row.id, generation=row.generation)
    return [step for step in steps if step.name.startswith(f"rejected.{role}.")]


def rejections_by_person(loop: Loop, row: StoryRow) -> list[str]:
    """Return why a person rejected the story after it had been accepted, the oldest reason first."""
    steps = [step for step in loop.store.steps(row.id) if step.name == REJECTED_BY_PERSON]
    return [describe_rejection(step.result) for step in steps if step.outcome is not None]


def reason_of(rejection: StepRow) -> str:
    """Return the first complaint of a rejection, as a story's reason."""
    return shorten_complaint(str(rejection.result["complaints"][0]))


def shorten_complaint(text: str) -> str:
    """Shorten a complaint for events and reasons: the error of its first traceback comes first, the middle is cut."""
    found = _TRACEBACK.search(text)
    if found is not None:
        lines = [line.strip() for line in found[0].splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("E ")]  # as pytest marks them
        text = f"{(errors or lines)[-1].removeprefix('E ').strip()} | {text}"
    if len(text) <= _LISTED_CHARS:
        return text
    half = _LISTED_CHARS // 2 - 5
    return f"{text[:half]} [...] {text[-half:]}"


async def reject(
    loop: Loop, commits: StoryCommits, row: StoryRow, role: AuthorRole, attempt: int, rejected: Rejected
) -> StepRow:
    """Record why an attempt was rejected, and keep its work as a patch.

    Raises:
        LoopStopped: As many attempts in a row as the limit `no_progress` were rejected with the same complaints.
    """
    complaints, base = bound_complaints(rejected.complaints), role.base_of(row)
    patch = None
    if rejected.commit is not None and base is not None:
        patch = await commits.keep_rejected(row, base, rejected.commit, role=role.name, attempt=attempt)
    name = f"rejected.{role.name}.{attempt}"
    result = {
        "complaints": complaints,
        "patch": None if patch is None else str(patch),
        "commit": rejected.commit,
    }
    is_last_attempt = attempt >= loop.settings.attempts
    kind = "story.failed" if is_last_attempt else "story.retried"
    shown = [shorten_complaint(each) for each in complaints[:MAX_LISTED]]
    with loop.store.transaction():
        step = loop.store.keep_step(row.key(name), outcome="rejected", result=result, attempt=attempt)
        loop.add_event(
            row, name, kind, of=role.steps_of(attempt), attempt=attempt, role=role.name, complaints=shown
        )
    _check_progress(loop)
    return step


def bound_complaints(complaints: Sequence[str]) -> list[str]:
    """Truncate complaints for the next attempt's prompt: text from an agent can have any length."""
    found, room = list[str](), _MAX_CHARS
    for number, each in enumerate(complaints):
        if number == _MAX_COMPLAINTS or room <= 0:
            return [*found, f"and {len(complaints) - number} more complaints, which are left out"]
        shown = each if len(each) <= room else f"{each[:room]}\n[{len(each) - room} characters are left out]"
        found.append(shown)
        room -= len(shown)
    return found


def shorten_list(names: Sequence[str], most: int) -> list[str]:
    """Return the first `most` names, and how many there are besides."""
    return [*names[:most], *([f"and {len(names) - most} more"] if len(names) > most else [])]


def _check_progress(loop: Loop) -> None:
    """End the loop if the last attempts were all rejected with the same complaints.

    Only attempts of the current round count, so that a resumed loop can continue. If all of them belong to one story
    that has no attempts left, only that story is skipped: other stories may succeed.

    Raises:
        LoopStopped: There was no progress.
    """
    limit, started_ms = loop.settings.limits.no_progress, loop.store.loop.started_ms
    last = [
        step
        for step in loop.store.steps()
        if step.name.startswith("rejected.") and step.started_ms >= started_ms
    ][-limit:]
    is_story_skipped = last[-1].attempt >= loop.settings.attempts and len({step.story for step in last}) == 1
    if len(last) < limit or is_story_skipped:
        return
    if all(step.result["complaints"] == last[0].result["complaints"] for step in last):
        reason = (
            f"no progress: the last {limit} attempts ended with the same complaint: {reason_of(last[-1])}"
        )
        raise LoopStopped(LoopEnd(LoopState.LIMIT, reason))
