"""Defines the planner, which turns a goal into stories, or asks a question."""

from pydantic import Field, model_validator

from ringfence.loop.role.answer import ITEMS_LIMIT, Answer, Line, Prose, Text
from ringfence.loop.role.base import Role


class PlannedStory(Answer):
    """A story as the planner drafts it."""

    id: Line
    title: Line
    description: Prose
    acceptance_criteria: list[Prose] = Field(min_length=1, max_length=ITEMS_LIMIT)
    priority: int = Field(description="Lower runs first.")
    depends_on: list[Line] = Field(max_length=ITEMS_LIMIT)
    files: list[Line] = Field(max_length=ITEMS_LIMIT)
    check: Line | None = Field(
        description="A shell command that proves the story, if the project's tests do not."
    )


class DraftedPlan(Answer):
    """Stories, or a question."""

    title: Line
    description: Text
    context: list[Prose] = Field(max_length=ITEMS_LIMIT)
    stories: list[PlannedStory] = Field(max_length=ITEMS_LIMIT)
    blocked: Prose | None = Field(
        description="A question that only a person can answer; null if there is none."
    )

    @model_validator(mode="after")
    def _has_either(self) -> "DraftedPlan":
        if not self.stories and self.blocked is None:
            raise ValueError("there are neither stories nor a question")
        return self


class Planner(Role[DraftedPlan]):
    """The role."""

    name = "planner"
    answer = DraftedPlan
    markers = ("stories",)
    shown = ("goal", "plan", "feedback", "guides", "files")
