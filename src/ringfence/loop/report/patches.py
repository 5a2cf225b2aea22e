"""What a loop, a story or a rejected attempt changed, as patches."""

from pathlib import Path

import anyio.to_thread

from ringfence.errors import RecordError, UsageError
from ringfence.loop.place import LoopPlace
from ringfence.loop.report.gathering import PATCH
from ringfence.loop.report.statistics import span_of
from ringfence.loop.repository import LoopRepository
from ringfence.loop.state import StoryState
from ringfence.loop.store.loops import LoopStore
from ringfence.loop.store.rows import StepRow

_TOO_LARGE = "is larger than 256 MiB; look at it with git in the loop's branch"


async def loop_patch(place: LoopPlace, store: LoopStore) -> bytes:
    """All that is on the loop's branch; empty: nothing.

    Raises:
        UsageError: It is too large for a patch.
        RecordError: The loop's repository was removed, and no patch was written before.
    """
    row, kept = await store.get(), place.directory / PATCH
    try:
        repository = LoopRepository.open(place.clones)
    except RecordError:
        if not kept.is_file():
            raise
        return await anyio.to_thread.run_sync(kept.read_bytes)
    patch = await repository.patch(row.base, await repository.tip())
    if patch is None:
        raise UsageError(f"the patch of loop {row.id} {_TOO_LARGE}")
    return patch


async def story_patch(place: LoopPlace, store: LoopStore, story: str) -> bytes:
    """What a story that passed has on the loop's branch.

    Raises:
        UsageError: There is no such story, or nothing of it is on the branch.
        RecordError: The loop's repository was removed.
    """
    row = await store.story(story)
    if row.state is not StoryState.PASSED or row.base is None or row.tip is None or row.merged is None:
        tried = [step.attempt for step in await _rejected(store, story)]
        hint = f"; --rejected {tried[-1]} prints its attempt {tried[-1]}" if tried else ""
        raise UsageError(f"story {story[:80]!r} is {row.state.value}: nothing of it is on the branch{hint}")
    repository = LoopRepository.open(place.clones)
    span = await span_of(repository, row.base, row.tip, row.merged)
    patch = None if span is None else await repository.patch(*span)
    if patch is None:
        raise UsageError(f"the patch of story {story[:80]!r} {_TOO_LARGE}")
    return patch


async def rejected_patch(store: LoopStore, story: str, attempt: int) -> bytes:
    """The work of an attempt at a story's code that was rejected.

    Raises:
        UsageError: There is no such story, or no such attempt of it.
        RecordError: The patch was removed with the loop's clones.
    """
    await store.story(story)
    known = await _rejected(store, story)
    found = next((step for step in reversed(known) if step.attempt == attempt), None)
    if found is None:
        tried = ", ".join(str(step.attempt) for step in known) or "none"
        raise UsageError(
            f"no attempt {attempt} of story {story[:80]!r} was rejected with work to show (there are: {tried})"
        )
    file = Path(str(found.result["patch"]))
    try:
        return await anyio.to_thread.run_sync(file.read_bytes)
    except FileNotFoundError as exc:
        raise RecordError(
            f"{str(file)!r} is gone: `ringfence loop rm` removes rejected work with the loop's clones"
        ) from exc


async def _rejected(store: LoopStore, story: str) -> list[StepRow]:
    """Rejected attempts at its code of which there is a patch, in order."""
    steps = [step for step in await store.steps(story) if step.name.startswith("rejected.implementor.")]
    with_work = [step for step in steps if step.result.get("patch")]
    return sorted(with_work, key=lambda step: (step.generation, step.attempt))
