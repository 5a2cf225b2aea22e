"""Who does what in a loop: what each role is asked, and what it may answer."""

from ringfence.loop.role.answers import ReviewAnswers, Verdict, WorkAnswer, schema_for
from ringfence.loop.role.evidence import check_evidence, is_passed
from ringfence.loop.role.model import Briefing, Role
from ringfence.loop.role.parsing import parse_answer
from ringfence.loop.role.rendering import prompt_for

__all__ = [
    "Briefing",
    "ReviewAnswers",
    "Role",
    "Verdict",
    "WorkAnswer",
    "check_evidence",
    "is_passed",
    "parse_answer",
    "prompt_for",
    "schema_for",
]
