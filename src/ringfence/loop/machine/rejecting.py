"""An attempt that is rejected: its work is kept aside, the next one is told why, and a loop that gets nowhere ends."""

from collections.abc import Sequence
from typing import Any

from ringfence.loop.machine.clones import Clones
from ringfence.loop.machine.complaints import bounded, fingerprint
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.stop import Stop
from ringfence.loop.rows import StepRow, StoryRow, code_steps, tests_steps
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopState

Json = dict[str, Any]
_SHOWN = 20
_TOLD_CHARS = 500


class Rejecting:
    """Turns attempts down.

    Args:
        loop: Whose.
        clones: Where they were made.
    """

    def __init__(self, loop: Loop, clones: Clones) -> None:
        self._loop = loop
        self._clones = clones

    async def past(self, row: StoryRow, role: RoleName) -> list[StepRow]:
        """What was said of the role's earlier attempts at the story."""
        return [
            step
            for step in self._loop.store.steps(row.id)
            if step.generation == row.generation and step.name.startswith(f"rejected.{role}.")
        ]

    async def again(
        self,
        row: StoryRow,
        role: RoleName,
        attempt: int,
        complaints: Sequence[str],
        *,
        commit: str | None = None,
    ) -> Json:
        """Reject an attempt: the clone goes back, the work is kept aside, the next attempt is told why."""
        complaints = bounded(complaints)
        store, name = self._loop.store, f"rejected.{role}.{attempt}"
        base = row.tests if role == "implementor" else row.base
        kept = None
        if commit is not None and base is not None:
            patch = await self._clones.reject(row, base, commit, role=role, attempt=attempt)
            kept = None if patch is None else str(patch)
        store.begin_step(row, name, run_id=None, attempt=attempt)
        result = {"complaints": complaints, "patch": kept, "commit": commit}
        store.end_step(row, name, outcome="rejected", result=result)
        told = [each[:_TOLD_CHARS] for each in complaints[:_SHOWN]]
        kind = "story.failed" if attempt >= self._loop.settings.attempts else "story.retried"
        steps = tests_steps(attempt) if role == "test_writer" else code_steps(attempt)
        self._loop.tell(row, name, kind, of=steps, attempt=attempt, role=role, complaints=told)
        await self._see_progress()
        return {"next": "again", "reason": complaints[0][:_TOLD_CHARS]}

    async def _see_progress(self) -> None:
        """End the loop if attempt after attempt ends with the very same complaint.

        Those of a round count anew, so that a loop that is resumed gets further. One story alone that uses up its
        attempts so is skipped: other stories may fare better.

        Raises:
            Stop: It does.
        """
        most, begun_ms = self._loop.settings.limits.no_progress, self._loop.store.loop.begun_ms
        last = [
            step
            for step in self._loop.store.steps()
            if step.name.startswith("rejected.") and step.began_ms >= begun_ms
        ][-most:]
        is_given_up = (
            last
            and last[-1].attempt >= self._loop.settings.attempts
            and len({step.story for step in last}) == 1
        )
        if len(last) == most and len({fingerprint(step) for step in last}) == 1 and not is_given_up:
            first = last[-1].result["complaints"][0][:_TOLD_CHARS]
            raise Stop(
                LoopState.LIMIT,
                f"no progress: the last {most} attempts ended with the same complaint: {first}",
            )
