"""Reads loops for lists and reports, even while another process works on them."""

from typing import Any

from ringfence.errors import ConfigurationError, RecordError
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.plans import plan_from_json
from ringfence.loop.report.build import build_report, state_of
from ringfence.loop.report.model import LoopReport
from ringfence.loop.repository import LoopRepository, RepositoryRemoved
from ringfence.loop.store import LoopStore, read_store
from ringfence.loop.story import Plan


def summarize_loop(directory: LoopDirectory, store: LoopStore) -> dict[str, Any]:
    """Return a loop's row in a list, as data for JSON."""
    row, stories = store.loop, store.stories
    return {
        "id": row.id,
        "state": state_of(directory, row),
        "reason": row.reason,
        "stories": len(stories),
        "passed": sum(story.state.value == "passed" for story in stories),
        "source": row.source,
        "branch": row.branch,
        "created_ms": row.created_ms,
        "ended_ms": row.ended_ms,
    }


async def read_report(directory: LoopDirectory, *, with_changes: bool = True) -> LoopReport:
    """Return the report of a loop.

    Args:
        directory: The loop's directory.
        with_changes: Whether to read the changes, too.

    Raises:
        InfrastructureFault: Its rows or its repository cannot be read.
        UsageError: There is no such loop.
    """
    store = read_store(directory)
    repository = open_repository(directory)
    return await build_report(
        directory, store, repository, plan_of(store), with_diffs=with_changes, with_changes=with_changes
    )


def plan_of(store: LoopStore) -> Plan | None:
    """Return a loop's stories; None if another version wrote them."""
    try:
        return plan_from_json(store.loop.plan)
    except ConfigurationError:  # written by another version; the rows hold most of the report
        return None


def open_repository(directory: LoopDirectory) -> LoopRepository | None:
    """Return a loop's repository; None if it was removed or cannot be read."""
    try:
        return LoopRepository.open(directory.repository_dir)
    except (RecordError, RepositoryRemoved):
        return None
