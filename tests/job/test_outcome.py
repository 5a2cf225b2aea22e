"""From what ended a run to its state."""

import errno
from pathlib import Path

import pytest

from ringfence.cli.options import SETTINGS
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    Diverged,
    InfrastructureFault,
    LimitReached,
    PolicyRefused,
    RecordError,
    SandboxDied,
    SandboxFileError,
    SandboxStartFailed,
    UsageError,
)
from ringfence.job.outcome import outcome_of, outcome_of_agent, root_cause
from ringfence.job.state import JobState

CASES = [
    (UsageError("x"), JobState.FAILED),
    (ConfigurationError("x"), JobState.CONFIGURATION),
    (PolicyRefused("x", rule="r"), JobState.REFUSED),
    (LimitReached("turns", allowed=1, used=1), JobState.LIMIT),
    (LimitReached("wall_clock_s", allowed=1, used=1), JobState.TIMED_OUT),
    (AuthenticationFailed("x"), JobState.AUTHENTICATION),
    (SandboxStartFailed("x"), JobState.SANDBOX_START),
    (SandboxDied("x", sandbox_id="s", reason="memory"), JobState.LIMIT),
    (SandboxDied("x", sandbox_id="s", reason="ttl"), JobState.TIMED_OUT),
    (SandboxDied("x", sandbox_id="s", reason="killed"), JobState.INFRASTRUCTURE),
    (SandboxFileError("x", path="p", errno_name="ENOSPC"), JobState.INFRASTRUCTURE),
    (RecordError("x"), JobState.INFRASTRUCTURE),
    (Diverged(1, "x"), JobState.INFRASTRUCTURE),
    (InfrastructureFault("x"), JobState.INFRASTRUCTURE),
    (ZeroDivisionError("x"), JobState.INFRASTRUCTURE),
]


@pytest.mark.parametrize(("error", "state"), CASES, ids=lambda value: type(value).__name__)
def test_each_error_is_one_state(error: Exception, state: JobState):
    """Four kinds of failure, never mixed."""
    assert outcome_of(error).state is state


@pytest.mark.parametrize("limit", ["turns", "tool_calls", "tokens", "cost_usd", "wall_clock_s"])
def test_a_limit_names_an_option_that_there_is(limit: str):
    """What it advises can be typed."""
    words = str(LimitReached(limit, allowed=1, used=1)).replace(",", "").split()
    option = next(word for word in words if word.startswith("--"))
    assert option.removeprefix("--").replace("-", "_") in SETTINGS


def test_a_full_disk_is_no_bug(tmp_path: Path):
    """It is told with the file, and with what to do."""
    error = OSError(errno.ENOSPC, "No space left on device", "/state/x")
    assert "free some space" in outcome_of(error, kept_in=tmp_path).reason


def test_a_bug_names_where_it_is_kept(tmp_path: Path):
    """So that it can be reported."""
    assert str(tmp_path) in outcome_of(KeyError("x"), kept_in=tmp_path).reason


def test_a_known_error_is_found_in_a_group():
    """Tasks fail together; what we know is told, not that there were several."""
    known = SandboxDied("gone", sandbox_id="s", reason="killed")
    group = ExceptionGroup("tasks", [ValueError("x"), ExceptionGroup("inner", [known])])
    assert root_cause(group) is known


def test_an_unknown_end_of_an_agent_is_not_a_success():
    """What this version does not know is told as it is."""
    assert outcome_of_agent("enlightenment").state is JobState.INFRASTRUCTURE
