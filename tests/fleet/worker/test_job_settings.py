"""What a run is asked for a job: its agent's settings, within what was set aside for it."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from ringfence.errors import InfrastructureFault, LimitReached
from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.store.job import Job
from ringfence.fleet.worker.job_settings import agent_settings, effective_of, reason_within, task_of
from ringfence.job.state import JobState


def _job(**more: Any) -> Job:
    nothing = dict.fromkeys(Job.__dataclass_fields__)
    known = {"id": "j1", "agent": "a", "state": JobState.RUNNING, "created_at": datetime.now(UTC)}
    return Job(**{**nothing, **known, **more})


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [((None, None), (1000, 2.0)), ((10, 0.5), (10, 0.5)), ((5000, 9.0), (1000, 2.0)), ((0, 2.0), (1, 2.0))],
    ids=["none", "less", "more", "nothing"],
)
def test_a_run_has_no_more_to_spend_than_its_job(allowed: tuple[Any, Any], expected: tuple[int, float]):
    """A budget of the agent, the day or the fleet reaches the run as its limit, and never widens it."""
    settings = AgentSettings.model_validate({"limits": {"tokens": 1000, "cost_usd": 2}})
    limits = effective_of(settings, _job(allowed_tokens=allowed[0], allowed_usd=allowed[1])).settings.limits
    assert (limits.tokens, limits.cost_usd) == expected


def test_a_run_without_a_price_limit_gets_the_jobs():
    """Where the agent has no bound in dollars, what was set aside is one."""
    assert effective_of(AgentSettings(), _job(allowed_usd=0.25)).settings.limits.cost_usd == 0.25


@pytest.mark.parametrize(
    ("limit", "left", "expected"),
    [
        ("tokens", {"allowed_tokens": 10}, r"reached: 12 of 10; the day's budget had no more left for it$"),
        ("cost_usd", {"allowed_usd": 1.0}, r"reached: 12 of 10; the day's budget had no more left for it$"),
        ("tokens", {"allowed_tokens": 5000}, "raise it with --max-tokens"),
        ("tokens", {"allowed_usd": 1.0}, "raise it with --max-tokens"),
        ("turns", {"allowed_tokens": 10}, "raise it with --max-turns"),
    ],
    ids=["tokens left", "dollars left", "its own", "another's", "no budget"],
)
def test_a_budget_that_is_used_up_is_told_as_such(limit: str, left: dict[str, Any], expected: str):
    """Where a run had less than its limits, since a budget had no more left, nobody is told to raise the limits."""
    limits = AgentSettings.model_validate({"limits": {"tokens": 1000}}).limits
    reason = str(LimitReached(limit, allowed=10, used=12))
    assert re.search(expected, reason_within(limits, _job(**left), reason))


def test_a_configuration_of_another_version_is_told():
    """What cannot be read any more ends the job with what to do."""
    with pytest.raises(InfrastructureFault, match="ringfence job retry"):
        agent_settings(b'{"no": "such key"}', _job())


def test_a_task_without_a_payload_is_left_as_it_is():
    """Braces in a task that somebody gave by hand are no placeholders."""
    assert task_of(b"say {{ payload.x }}", None) == "say {{ payload.x }}"
    assert "main" in task_of(b"say {{ payload.x }}", b'{"x": "main"}')


def test_a_task_is_text_whatever_came_with_its_trigger():
    """Half of a surrogate pair, which JSON can spell, and of which no request can be made, is replaced."""
    task = task_of(b"say {{ payload.x }}", b'{"x": "<\\ud800>"}')
    assert "<\ufffd>" in task.encode().decode()
