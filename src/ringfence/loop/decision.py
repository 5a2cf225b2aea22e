"""A person's decision about a story: to begin it anew, or to accept an attempt that was rejected."""

import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.loop.configuration import brought_back
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.plans import plan_from_json, plan_to_json, with_mended
from ringfence.loop.repository import LoopRepository
from ringfence.loop.rows import ACCEPTED, StoryRow
from ringfence.loop.state import StoryState
from ringfence.loop.store import LoopStore, open_store
from ringfence.loop.story import Plan


async def begin_anew(place: LoopDirectory, story: str, answer: str | None) -> None:
    """Have a story that was skipped or blocked wait for its turn again, as if nothing had been done about it.

    Its words are those that its file has now, if that is still there. Stories that were skipped or blocked because of
    it wait again, too.

    Args:
        place: Its loop's.
        story: Its id.
        answer: What a blocked one asked for; the roles are told.

    Raises:
        UsageError: There is no such story, it is neither skipped nor blocked, or its loop is at work.
        RecordError: Its clones were removed.
        ConfigurationError: The stories' file is wrong as it is now.
    """
    with open_store(place) as store:
        # First: without the repository nothing is begun.
        await anyio.to_thread.run_sync(LoopRepository.open, place.clones)
        row = store.story(story)
        if row.state not in (StoryState.SKIPPED, StoryState.BLOCKED):
            raise UsageError(
                f"story {story!r} is {row.state.value}; only a skipped or blocked one is begun anew"
            )
        if row.state is StoryState.BLOCKED and answer is None:
            raise UsageError(f"story {story!r} asks: {row.reason}; answer by --answer TEXT")
        kept = plan_from_json(store.loop.plan)
        plan = await anyio.to_thread.run_sync(with_mended, kept, story)
        waits = _leaning_on(story, plan)
        with store.transaction():
            store.update_loop(plan=plan_to_json(plan))
            for each in store.stories:
                if each.id == story or (each.id in waits and _was_kept_waiting(each)):
                    store.update_story(
                        each.id, state=StoryState.WAITING, generation=each.generation + 1, attempt=0, stage="",
                        base=None, tests=None, tip=None, reason="", slot=None,
                    )  # fmt: skip
            if answer is not None:
                store.update_story(story, answer=answer)
            store.begin_round()


async def accept(place: LoopDirectory, story: str, number: int | None) -> None:
    """Have a rejected attempt at a story merged as if the judge had accepted it.

    What was skipped because of the story waits again. The loop merges the attempt when it is resumed.

    Args:
        place: The loop's.
        story: The story's id.
        number: The attempt's number, as `loop diff STORY --rejected N` takes it. None: the last one.

    Raises:
        UsageError: There is no such story or attempt, the story has passed, or its loop is at work.
        RecordError: The loop's clones were removed.
    """
    with open_store(place) as store:
        await anyio.to_thread.run_sync(LoopRepository.open, place.clones)
        row, loop = store.story(story), store.loop
        if row.state is StoryState.PASSED:
            raise UsageError(f"story {story!r} has passed: nothing of it is left to accept")
        attempts = brought_back(loop.configuration, loop=place.id)[1].attempts
        attempt, commit = _attempt(store, row, number, attempts)
        waits = _leaning_on(story, plan_from_json(loop.plan)) - {story}
        with store.transaction():
            store.keep_step(row.key(ACCEPTED), outcome="accepted", result={"commit": commit}, attempt=attempt)
            store.update_story(
                story, state=StoryState.RUNNING, stage="merge", tip=commit, attempt=attempt, reason="",
                slot=row.slot or 0,
            )  # fmt: skip
            for each in store.stories:
                if each.id in waits and _was_kept_waiting(each):
                    store.update_story(
                        each.id, state=StoryState.WAITING, generation=each.generation + 1, reason=""
                    )
            store.begin_round()


def _attempt(store: LoopStore, row: StoryRow, number: int | None, attempts: int) -> tuple[int, str]:
    """The number within its generation, and the commit, of an attempt at a story's code.

    Raises:
        UsageError: There is none with this number, or none since the story was begun anew.
    """
    commits = {
        (step.generation - 1) * attempts + step.attempt: (step.attempt, str(step.result["commit"]))
        for step in store.steps(row.id)
        if step.name == f"code.{step.attempt}.commit" and step.generation == row.generation
    }
    if row.base is None or not commits:
        raise UsageError(f"no attempt at the code of story {row.id!r} was made since it was last begun")
    if number is not None and number not in commits:
        named = ", ".join(map(str, sorted(commits)))
        raise UsageError(f"story {row.id!r} has no attempt {number} that can be accepted; it has {named}")
    return commits[max(commits) if number is None else number]


def _leaning_on(story: str, plan: Plan) -> set[str]:
    """Stories that depend on one, at first or second hand, and ask nothing of their own."""
    found, grown = set[str](), {story}
    while grown:
        found |= grown
        grown = {each.id for each in plan.stories if found.intersection(each.depends_on)} - found
    return {each.id for each in plan.stories if each.id in found and each.question is None}


def _was_kept_waiting(row: StoryRow) -> bool:
    """Whether it was given up before anything was done about it."""
    return row.state in (StoryState.SKIPPED, StoryState.BLOCKED) and row.base is None
