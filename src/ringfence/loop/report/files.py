"""Writes a loop's report to its directory, where `loop rm` keeps it."""

import anyio.to_thread

from ringfence.errors import RingfenceError
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.report.build import build_report
from ringfence.loop.report.diff import PATCH
from ringfence.loop.repository import LoopRepository
from ringfence.loop.repository.repository_directory import write_atomically
from ringfence.loop.store import LoopStore
from ringfence.loop.story import Plan
from ringfence.secret import Redactor

MARKDOWN, PAGE = "report.md", "report.html"
PROPOSAL = "proposal.md"
"""The text of a pull request."""


async def write_report(
    directory: LoopDirectory,
    store: LoopStore,
    repository: LoopRepository,
    plan: Plan,
    *,
    redactor: Redactor | None = None,
) -> str | None:
    """Write `report.md`, `report.html`, `proposal.md` and, if a story passed, `loop.patch`. Calls can be repeated.

    A loop does not fail because its report cannot be written: `ringfence loop show` prints it at any time.

    Args:
        directory: The loop's directory.
        store: The loop's rows, with its end.
        repository: The loop's repository.
        plan: The loop's stories.
        redactor: Removes the user's secrets from agents' text in diffs. None: they are not known here.

    Returns:
        The error that was ignored; None: there was none.
    """
    try:
        await _write(directory, store, repository, plan, redactor or Redactor(()))
    except RingfenceError as exc:
        return f"the report of loop {directory.id} could not be written: {exc}"
    return None


async def _write(
    directory: LoopDirectory, store: LoopStore, repository: LoopRepository, plan: Plan, redactor: Redactor
) -> None:
    from ringfence.loop.report.html import (
        render_html,
    )  # Jinja is imported on use, so that it does not delay the start of a loop
    from ringfence.loop.report.markdown import render_markdown

    if any(story.is_merged for story in store.stories):
        patch = await repository.patch(repository.base, await repository.tip())
        if patch is not None:
            await anyio.to_thread.run_sync(write_atomically, directory.path / PATCH, patch)
    report = await build_report(directory, store, repository, plan)
    others = render_markdown(report, is_for_others=True)
    texts = ((MARKDOWN, render_markdown(report)), (PROPOSAL, others), (PAGE, render_html(report)))
    for name, text in texts:
        await anyio.to_thread.run_sync(
            write_atomically, directory.path / name, redactor.redact(text).encode()
        )
