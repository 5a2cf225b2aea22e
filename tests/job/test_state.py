"""States of a job: which may follow which, and what each end exits with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ExitCode
from ringfence.job.state import EXIT_CODES, JobState, exit_code, may_follow

STATES = st.sampled_from(JobState)


@given(before=STATES, after=STATES)
def test_nothing_follows_an_end(before: JobState, after: JobState):
    """A terminal state is reached once."""
    assert not (before.is_terminal and may_follow(before, after))


@given(walk=st.lists(STATES, max_size=30))
def test_every_walk_is_short_and_forwards(walk: list[JobState]):
    """However states are asked for, a job goes through each at most once and ends at most once."""
    state, seen = JobState.QUEUED, [JobState.QUEUED]
    for wanted in walk:
        if may_follow(state, wanted):
            state = wanted
            seen.append(wanted)
    assert len(seen) == len(set(seen)) <= 4
    assert sum(one.is_terminal for one in seen) <= 1


@given(state=STATES)
def test_every_live_state_may_end_anyhow(state: JobState):
    """Whatever happens, there is a way to an end."""
    ends = [after for after in JobState if after.is_terminal]
    assert all(may_follow(state, end) is not state.is_terminal for end in ends)


@pytest.mark.parametrize("state", EXIT_CODES)
def test_require_verified_only_changes_unverified(state: JobState):
    """No other end is touched by the option."""
    strict = exit_code(state, require_verified=True)
    expected = ExitCode.CHECK_RED if state is JobState.UNVERIFIED else EXIT_CODES[state]
    assert strict is expected
