"""Beginning a story anew."""

from ringfence.errors import UsageError
from ringfence.loop.place import LoopPlace
from ringfence.loop.plans import plan_from_json
from ringfence.loop.state import StoryState
from ringfence.loop.store.loops import LoopStore, open_database
from ringfence.loop.store.rows import StoryRow
from ringfence.loop.story import Plan


async def begin_anew(place: LoopPlace, story: str, answer: str | None) -> None:
    """Have a story that was skipped or blocked wait for its turn again, as if nothing had been done about it.

    Stories that were skipped or blocked because of it wait again, too.

    Args:
        place: Its loop's.
        story: Its id.
        answer: What a blocked one asked for; the roles are told.

    Raises:
        UsageError: There is no such story, it is neither skipped nor blocked, or its loop is at work.
    """
    with place.held():
        database = open_database(place.database_url)
        try:
            store = LoopStore(database, place.id)
            row = await store.story(story)
            if row.state not in (StoryState.SKIPPED, StoryState.BLOCKED):
                raise UsageError(
                    f"story {story!r} is {row.state.value}; only a skipped or blocked one is begun anew"
                )
            if row.state is StoryState.BLOCKED and answer is None:
                raise UsageError(f"story {story!r} asks: {row.reason}; answer by --answer TEXT")
            waits = _leaning_on(story, plan_from_json((await store.get()).plan))
            for each in await store.stories():
                if each.id == story or (each.id in waits and _was_kept_waiting(each)):
                    await store.change(
                        each.id, state=StoryState.WAITING, generation=each.generation + 1, attempt=0, stage="",
                        base=None, tests=None, tip=None, reason="", slot=None,
                    )  # fmt: skip
            if answer is not None:
                await store.change(story, answer=answer)
            if (await store.get()).state.is_end:
                await store.begin_again()
        finally:
            database.close()


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
