"""Defines the roles of a loop: each is a class in a separate module, with its prompt template `NAME.md` beside it."""

from collections.abc import Mapping
from typing import Any

from ringfence.loop.role.base import AuthorRole, Role
from ringfence.loop.role.implementor import Implementor
from ringfence.loop.role.judge import Judge, Verdict, check_evidence, complaints_of, is_passed
from ringfence.loop.role.planner import Planner
from ringfence.loop.role.reviewer import Reviewer
from ringfence.loop.role.sections import Briefing
from ringfence.loop.role.test_writer import TestWriter
from ringfence.loop.settings import RoleName

PLANNER, TEST_WRITER, IMPLEMENTOR, REVIEWER, JUDGE = (
    Planner(), TestWriter(), Implementor(), Reviewer(), Judge(),
)  # fmt: skip
ROLES: Mapping[RoleName, Role[Any]] = {
    role.name: role for role in (PLANNER, TEST_WRITER, IMPLEMENTOR, REVIEWER, JUDGE)
}

__all__ = [
    "IMPLEMENTOR",
    "JUDGE",
    "PLANNER",
    "REVIEWER",
    "ROLES",
    "TEST_WRITER",
    "AuthorRole",
    "Briefing",
    "Role",
    "Verdict",
    "check_evidence",
    "complaints_of",
    "is_passed",
]
