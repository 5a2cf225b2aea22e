"""Runs tests and other checks in a sandbox, parses their reports, and decides which files are protected."""

from ringfence.check.baseline import new_failures
from ringfence.check.discovery import detect
from ringfence.check.feedback import feedback, summary
from ringfence.check.red_reason import red_for_the_right_reason
from ringfence.check.report import Check, Report, TestResult
from ringfence.check.runner.registry import run_check

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
