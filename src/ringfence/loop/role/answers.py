"""What each role answers: types, and the schemas by which agents are held to them.

The schemas are of the kind that models' providers call strict: every property is required, none may be added.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ringfence.loop.role.model import Role

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
Said = Annotated[Text, StringConstraints(min_length=1)]
_MOST = 200
"""Of stories, criteria and pieces of evidence."""

QuestionId = Literal["criteria_tested", "real_implementation", "truthful_tests", "intent_met"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PlannedStory(_Answer):
    """A story as the planner drafts it."""

    id: Line
    title: Line
    description: Said
    acceptance_criteria: list[Said] = Field(min_length=1, max_length=_MOST)
    priority: int = Field(description="Lower runs first.")
    depends_on: list[Line] = Field(max_length=_MOST)
    files: list[Line] = Field(max_length=_MOST)
    check: Line | None = Field(
        description="A shell command that proves the story, if the project's tests do not."
    )


class DraftedPlan(_Answer):
    """The planner's answer: stories, or a question."""

    title: Line
    description: Text
    context: list[Said] = Field(max_length=_MOST)
    stories: list[PlannedStory] = Field(max_length=_MOST)
    blocked: Said | None = Field(
        description="A question that only a person can answer; null if there is none."
    )

    @model_validator(mode="after")
    def _has_either(self) -> "DraftedPlan":
        if not self.stories and self.blocked is None:
            raise ValueError("there are neither stories nor a question")
        return self


class ReviewAnswer(_Answer):
    """One question, answered."""

    id: QuestionId
    answer: bool
    evidence: Said


class ReviewAnswers(_Answer):
    """The reviewer's answer: each of the four questions once."""

    questions: list[ReviewAnswer] = Field(max_length=4)

    @model_validator(mode="after")
    def _has_each_once(self) -> "ReviewAnswers":
        if sorted(each.id for each in self.questions) != sorted(QuestionId.__args__):  # type: ignore[attr-defined]
            raise ValueError("each of the four questions must be answered once")
        return self


class CodeLine(_Answer):
    """A place in the candidate."""

    file: Line
    line: int


class PassedTest(_Answer):
    """A test that ran and passed."""

    test: Line


class CriterionVerdict(_Answer):
    """What the judge says of one criterion."""

    criterion: int = Field(description="Its number, counted from 1.")
    verdict: Literal["met", "not_met", "unclear"]
    evidence: list[CodeLine | PassedTest] = Field(max_length=_MOST)
    reason: Said


class Verdict(_Answer):
    """The judge's answer. It alone lets nothing pass: see `check_evidence`."""

    criteria: list[CriterionVerdict] = Field(max_length=_MOST)
    overall: Literal["pass", "reject"]
    feedback: Text = Field(description="For the next attempt; empty if there is none.")


class WorkAnswer(_Answer):
    """What the test writer or the implementor says at its end."""

    status: Literal["done", "blocked"]
    summary: Text
    question: Said | None = Field(description="If blocked: what a person must answer. Else null.")

    @model_validator(mode="after")
    def _asks_if_blocked(self) -> "WorkAnswer":
        if (self.status == "blocked") != (self.question is not None):
            raise ValueError("a question is asked if, and only if, the status is blocked")
        return self


Answer = DraftedPlan | ReviewAnswers | Verdict | WorkAnswer

ANSWERS: dict[Role, type[Answer]] = {
    "planner": DraftedPlan,
    "test_writer": WorkAnswer,
    "implementor": WorkAnswer,
    "reviewer": ReviewAnswers,
    "judge": Verdict,
}

_KEPT = ("type", "properties", "required", "items", "enum", "anyOf", "$ref", "description")


def schema_for(role: Role) -> dict[str, Any]:
    """The JSON schema of the role's answer, strict, with nothing that strict modes refuse."""
    schema = ANSWERS[role].model_json_schema(mode="serialization")
    definitions = {name: _strict(each) for name, each in schema.get("$defs", {}).items()}
    strict = _strict(schema)
    return {**strict, "$defs": definitions} if definitions else strict


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Bounds are left out, which not every provider knows: they are kept by the types."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        strict["enum"] = [schema["const"]]
    if "anyOf" in schema:
        strict["anyOf"] = [_strict(each) for each in schema["anyOf"]]
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    if schema.get("type") == "object":
        strict.pop("description", None)  # is for those who read the code
        strict["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        strict["required"] = list(schema["properties"])
        strict["additionalProperties"] = False
    return strict
