"""Stories: read in whichever dialect they were written, put in order, checked, and exported with their progress."""

from ringfence.loop.story.checking import check_plan, questions
from ringfence.loop.story.details import details
from ringfence.loop.story.exporting import export
from ringfence.loop.story.model import Plan, Story, StoryEnd
from ringfence.loop.story.paths import names_path
from ringfence.loop.story.reading import plan_again, plan_from, read_plan
from ringfence.loop.story.scheduling import Ready, ready

__all__ = [
    "Plan",
    "Ready",
    "Story",
    "StoryEnd",
    "check_plan",
    "details",
    "export",
    "names_path",
    "plan_again",
    "plan_from",
    "questions",
    "read_plan",
    "ready",
]
