"""What a run is asked for a job: its agent's settings, within what was set aside for it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.store.job import Job
from ringfence.fleet.worker.asking import agent_settings, effective_of, task_of
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
