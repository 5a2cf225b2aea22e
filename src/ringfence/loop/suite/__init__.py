"""Runs tests and other checks inside a sandbox, and says what each test came to."""

from ringfence.loop.suite.detecting import Detected, detect
from ringfence.loop.suite.feedback import feedback
from ringfence.loop.suite.judging import missing, new_failures, red_for_the_right_reason
from ringfence.loop.suite.model import Cause, Check, Report, TestResult
from ringfence.loop.suite.reason import Project
from ringfence.loop.suite.running import run_check

__all__ = [
    "Cause",
    "Check",
    "Detected",
    "Project",
    "Report",
    "TestResult",
    "detect",
    "feedback",
    "missing",
    "new_failures",
    "red_for_the_right_reason",
    "run_check",
]
