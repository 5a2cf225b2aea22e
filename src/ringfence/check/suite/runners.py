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
_BREAKS = re.compile(r"&&|\|\||[;&|\n]")
_NO_CALL = re.compile(
    r"\s*(?:[!({]\s*)*(?:\w+=\S*\s+)*(?:(?:\S*/)?(?:echo|printf|[ef]?grep|rg|test|\[|cat|head|tail|ls|rm|find|cp|mv|mkdir|touch|cd"
    r"|sed|awk|which|type|pip[\d.]*)|uv\s+pip|uv\s+add|command\s+-v|(?:\S*/)?python[\d.]*\s+-m\s+pip"
    r"|(?:\S*/)?python[\d.]*\s+-c)(?:\s|$)"
)
"""The beginning of a command that may name a runner and does not call it."""


def runner_of(command: str) -> str | None:
    """Which runner's report a command's tests can be read from; None: only its exit code counts."""
    calls = ";".join(part for part in _BREAKS.split(command) if not _NO_CALL.match(part))
    for pattern, runner in _RUNNERS:
        if re.search(pattern, calls):
            return runner
    return None
