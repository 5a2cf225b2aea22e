"""Reads stories in several dialects, orders and checks them, and exports them with their progress."""

from ringfence.loop.story.export import export
from ringfence.loop.story.model import Plan, Story, StoryEnd, details
from ringfence.loop.story.reader import plan_again, plan_from, read_plan
from ringfence.loop.story.schedule import Ready, check_plan, names_path, questions, ready

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
