"""Who does what in a loop: what each role is asked, and what it may answer."""

from ringfence.errors import Unparseable
from ringfence.loop.role.answers import (
    CodeLine,
    CriterionVerdict,
    DraftedPlan,
    PassedTest,
    PlannedStory,
    ReviewAnswer,
    ReviewAnswers,
    Verdict,
    WorkAnswer,
    schema_for,
)
from ringfence.loop.role.evidence import check_evidence, is_passed
from ringfence.loop.role.model import ROLES, Briefing, Cut, Prompt, Role
from ringfence.loop.role.parsing import parse_answer
from ringfence.loop.role.rendering import MOST_CHARS, prompt_for

__all__ = [
    "MOST_CHARS",
    "ROLES",
    "Briefing",
    "CodeLine",
    "CriterionVerdict",
    "Cut",
    "DraftedPlan",
    "PassedTest",
    "PlannedStory",
    "Prompt",
    "ReviewAnswer",
    "ReviewAnswers",
    "Role",
    "Unparseable",
    "Verdict",
    "WorkAnswer",
    "check_evidence",
    "is_passed",
    "parse_answer",
    "prompt_for",
    "schema_for",
]
