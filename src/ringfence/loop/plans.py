"""Plans as a loop keeps them: the file may be changed or gone when it goes on."""

import json
from collections.abc import Sequence
from pathlib import Path

from ringfence.loop.state import StoryState
from ringfence.loop.store.rows import StoryRow
from ringfence.loop.story import Plan, StoryEnd, plan_again
from ringfence.loop.story.exporting import document_of


def plan_to_json(plan: Plan) -> str:
    """As text."""
    document = plan.document if plan.document is not None else document_of(plan)
    return json.dumps(
        {"document": document, "source": None if plan.source is None else str(plan.source.absolute())}
    )


def plan_from_json(text: str) -> Plan:
    """From it.

    Raises:
        ConfigurationError: Another version of ringfence wrote it.
    """
    found = json.loads(text)
    return plan_again(found["document"], source=Path(found["source"]) if found["source"] else None)


def ends_of(rows: Sequence[StoryRow]) -> dict[str, StoryEnd]:
    """How stories ended, by id; those that have not are not in it."""
    ends = dict[str, StoryEnd]()
    for row in rows:
        match row.state:
            case StoryState.PASSED:
                ends[row.id] = StoryEnd("passed", row.reason)
            case StoryState.SKIPPED:
                ends[row.id] = StoryEnd("skipped", row.reason)
            case StoryState.BLOCKED:
                ends[row.id] = StoryEnd("blocked", row.reason)
            case _:
                pass
    return ends
