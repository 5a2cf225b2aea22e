"""Defines the reviewer, which answers four questions about an attempt, for the judge."""

from typing import Literal

from pydantic import Field, model_validator

from ringfence.loop.role.answer import Answer, Prose
from ringfence.loop.role.base import Role

QuestionId = Literal["criteria_tested", "real_implementation", "truthful_tests", "intent_met"]


class ReviewAnswer(Answer):
    """One question, answered."""

    id: QuestionId
    answer: bool
    evidence: Prose


class ReviewAnswers(Answer):
    """Each of the four questions once."""

    questions: list[ReviewAnswer] = Field(max_length=4)

    @model_validator(mode="after")
    def _has_each_once(self) -> "ReviewAnswers":
        if sorted(each.id for each in self.questions) != sorted(QuestionId.__args__):  # type: ignore[attr-defined]
            raise ValueError("each of the four questions must be answered once")
        return self


class Reviewer(Role[ReviewAnswers]):
    """The role. As an agent CLI it has no tool that runs or writes (`run_settings`)."""

    name = "reviewer"
    answer = ReviewAnswers
    markers = ("questions",)
    shown = ("story", "criteria", "details", "checks", "results", "notes", "diff", "tests", "plan", "guides")
