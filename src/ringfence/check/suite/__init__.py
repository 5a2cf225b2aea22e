"""Runs tests and other checks inside a sandbox, and says what each test came to."""

from ringfence.check.suite.detecting import detect
from ringfence.check.suite.feedback import feedback, summary
from ringfence.check.suite.judging import new_failures, red_for_the_right_reason
from ringfence.check.suite.model import Check, Report, TestResult
from ringfence.check.suite.running import run_check

__all__ = [
    "Check",
    "Report",
    "TestResult",
    "detect",
    "feedback",
    "new_failures",
    "red_for_the_right_reason",
    "run_check",
    "summary",
]
