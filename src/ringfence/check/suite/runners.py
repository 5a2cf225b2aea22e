"""Test runners, by the commands that call them."""

import re

_RUNNERS = (
    (r"\bpytest\b|\bpy\.test\b", "pytest"),
    (r"-m\s+unittest\b", "unittest"),
    (r"\bnode\b.*\s--test\b", "node"),
    (r"\bgo\s+test\b", "go"),
    (r"\bcargo\s+(?:\+\S+\s+)?(?:test|t)\b", "cargo"),
    (r"\bmvn\b.*\b(?:test|verify|install|package)\b", "maven"),
)


def runner_of(command: str) -> str | None:
    """Which runner's report a command's tests can be read from; None: only its exit code counts."""
    for pattern, runner in _RUNNERS:
        if re.search(pattern, command):
            return runner
    return None
