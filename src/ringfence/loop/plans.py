"""Plans as a loop keeps them: the file may be changed or gone when it goes on."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.loop.rows import StoryRow
from ringfence.loop.state import StoryState
from ringfence.loop.story import Plan, StoryEnd, plan_again, read_plan
from ringfence.loop.story.dialect import Entry, entries
from ringfence.loop.story.export import document_of


def plan_to_json(plan: Plan) -> str:
    """As text."""
    source = None if plan.source is None else str(plan.source.absolute())
    return json.dumps({"document": document_of(plan), "source": source})


def plan_from_json(text: str) -> Plan:
    """From it.

    Raises:
        ConfigurationError: Another version of ringfence wrote it.
    """
    found = json.loads(text)
    return plan_again(found["document"], source=Path(found["source"]) if found["source"] else None)


def with_mended(plan: Plan, story: str) -> Plan:
    """The same plan, but for a story's fields as its file has them now; where that has no such story, as it is.

    Raises:
        ConfigurationError: The file is there, and wrong.
    """
    if plan.source is None or not plan.source.exists():
        return plan
    document = copy.deepcopy(plan.document)
    found = read_plan(plan.source)
    kept, now = _entries_of(plan, document)[story], _entries_of(found, found.document).get(story)
    if now is None:
        return plan
    *way, last = kept.path
    parent: Any = document
    for step in way:
        parent = parent[step]
    parent[last] = now.values
    return plan_again(document, source=plan.source)


def _entries_of(plan: Plan, document: Any) -> Mapping[str, Entry]:
    """How stories stand in a plan's document."""
    written = entries(document, plan.dialect)
    return {story.id: entry for story, entry in zip(plan.stories, written, strict=True)}


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
