"""Writes a loop's report to its directory, where it outlives the loop's clones."""

import anyio.to_thread

from ringfence.errors import RingfenceError
from ringfence.loop.place import LoopPlace
from ringfence.loop.report.gathering import gather
from ringfence.loop.report.patches import PATCH
from ringfence.loop.repository import LoopRepository
from ringfence.loop.repository.place import write_whole
from ringfence.loop.state import StoryState
from ringfence.loop.store import LoopStore
from ringfence.loop.story import Plan
from ringfence.secret import Redactor

MARKDOWN, PAGE = "report.md", "report.html"
PROPOSAL = "proposal.md"
"""The text of a pull request."""


async def write_report(
    place: LoopPlace,
    store: LoopStore,
    repository: LoopRepository,
    plan: Plan,
    *,
    redactor: Redactor | None = None,
) -> str | None:
    """Write `report.md`, `report.html`, `proposal.md` and, if something passed, `loop.patch`. Again is the same as once.

    That a report cannot be written is no reason for a loop to fail: `ringfence loop show` makes it at any time.

    Args:
        place: The loop's.
        store: Its rows: call it after its end was written there.
        repository: Its repository.
        plan: Its stories.
        redactor: Takes the user's secrets out of what agents wrote into diffs. None: they are not known here.

    Returns:
        What went wrong; None: nothing.
    """
    try:
        await _write(place, store, repository, plan, redactor or Redactor(()))
    except RingfenceError as exc:
        return f"the report of loop {place.id} could not be written: {exc}"
    return None


async def _write(
    place: LoopPlace, store: LoopStore, repository: LoopRepository, plan: Plan, redactor: Redactor
) -> None:
    from ringfence.loop.report.html import render_html  # with Jinja: no loop waits for it at its start
    from ringfence.loop.report.markdown import render_markdown

    if any(story.state is StoryState.PASSED and story.merged for story in store.stories):
        patch = await repository.patch(repository.base, await repository.tip())
        if patch is not None:
            await anyio.to_thread.run_sync(write_whole, place.directory / PATCH, patch)
    report = await gather(place, store, repository, plan)
    others = render_markdown(report, is_for_others=True)
    texts = ((MARKDOWN, render_markdown(report)), (PROPOSAL, others), (PAGE, render_html(report)))
    for name, text in texts:
        await anyio.to_thread.run_sync(write_whole, place.directory / name, redactor.redact(text).encode())
