"""Converts plans from and to the JSON that a loop stores, as the stories' file may change before it is resumed."""

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
    """Return a plan as JSON."""
    source = None if plan.source is None else str(plan.source.absolute())
    return json.dumps({"document": document_of(plan), "source": source})


def plan_from_json(text: str) -> Plan:
    """Return the plan that `plan_to_json` converted.

    Raises:
        ConfigurationError: Another version of ringfence wrote it.
    """
    found = json.loads(text)
    return plan_again(found["document"], source=Path(found["source"]) if found["source"] else None)


def with_mended(plan: Plan, story: str) -> tuple[Plan, str | None]:
    """Return a plan with one story's current fields in the stories' file, and None.

    If the file does not exist or has no such story, return the plan as it is, and what is missing.

    Raises:
        ConfigurationError: The file exists, but is not valid.
    """
    if plan.source is None:
        return plan, None
    if not plan.source.exists():
        return plan, f"the stories' file {str(plan.source)!r} does not exist any more"
    document = copy.deepcopy(plan.document)
    found = read_plan(plan.source)
    kept, now = _entries_of(plan, document)[story], _entries_of(found, found.document).get(story)
    if now is None:
        return plan, f"the stories' file {str(plan.source)!r} has no such story any more"
    *way, last = kept.path
    parent: Any = document
    for step in way:
        parent = parent[step]
    parent[last] = now.values
    return plan_again(document, source=plan.source), None


def _entries_of(plan: Plan, document: Any) -> Mapping[str, Entry]:
    """Return the entries of stories in a plan's document, by id."""
    written = entries(document, plan.dialect)
    return {story.id: entry for story, entry in zip(plan.stories, written, strict=True)}


def ends_of(rows: Sequence[StoryRow]) -> dict[str, StoryEnd]:
    """Return how stories ended, by id; stories that have not ended are left out."""
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
