"""From what ended a run to its state."""

import errno
from pathlib import Path

import pytest

from ringfence.cli.options import SETTINGS
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
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
from ringfence.runtime.agent_cli.exit_status import Ended, Ending, error_of

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


ENDS_OF_CLIENTS = {
    Ending.DONE: JobState.UNVERIFIED,
    Ending.DENIED: JobState.UNVERIFIED,
    Ending.NO_STRUCTURED_OUTPUT: JobState.FAILED,
    Ending.UNASKED: JobState.FAILED,
    Ending.NO_INNER_SANDBOX: JobState.CONFIGURATION,
    Ending.LIMIT: JobState.LIMIT,
    Ending.SILENT: JobState.INFRASTRUCTURE,
    Ending.INTERRUPTED: JobState.INFRASTRUCTURE,
    Ending.KILLED: JobState.INFRASTRUCTURE,
    Ending.CONTEXT: JobState.LIMIT,
    Ending.CUT: JobState.LIMIT,
    Ending.DECLINED: JobState.FAILED,
    Ending.POLICY: JobState.REFUSED,
    Ending.AUTHENTICATION: JobState.AUTHENTICATION,
    Ending.QUOTA: JobState.AUTHENTICATION,
    Ending.REQUEST: JobState.FAILED,
    Ending.API: JobState.INFRASTRUCTURE,
    Ending.NO_SESSION: JobState.FAILED,
    Ending.NOT_STARTED: JobState.CONFIGURATION,
    Ending.BROKEN_OFF: JobState.INFRASTRUCTURE,
}


@pytest.mark.parametrize("ending", Ending)
def test_each_way_a_client_ends_is_one_state(ending: Ending):
    """None of them passes for another, and none for success; the client's own reason is in it."""
    error = error_of(Ended(ending, "what it said"))
    outcome = outcome_of(error) if error is not None else outcome_of_agent(ending.value, "what it said")
    assert outcome.state is ENDS_OF_CLIENTS[ending]
    assert "what it said" in outcome.reason


@pytest.mark.parametrize("ending", Ending)
def test_each_way_a_client_ends_has_a_reason_of_its_own(ending: Ending):
    """Whoever reads it knows what to do next."""

    def told(one: Ending) -> str:
        error = error_of(Ended(one, ""))
        return str(error) if error is not None else outcome_of_agent(one.value, "").reason

    signals = {Ending.INTERRUPTED, Ending.KILLED}  # whose reasons name who sent them
    same = {one for one in Ending if told(one) == told(ending)}
    assert same == ({ending} | signals if ending in signals else {ending})
