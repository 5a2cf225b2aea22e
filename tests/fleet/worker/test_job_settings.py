"""The settings of a job's run: its agent's, limited by the job's reservation."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from ringfence.errors import InfrastructureFault, LimitReached
from ringfence.events import QuestionAnswered
from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.store.attempts import InterruptedRun
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.worker.job_settings import (
    agent_settings,
    asked_of,
    effective_of,
    prompt_of,
    reason_within,
    task_of,
)
from ringfence.job.question import HostRule, LimitRule, Question, Rule
from ringfence.job.state import JobState


def _job(**more: Any) -> Job:
    nothing = dict.fromkeys(Job.__dataclass_fields__)
    known = {"id": "j1", "agent": "a", "state": JobState.RUNNING, "created_at": datetime.now(UTC)}
    known |= {"tokens": 0, "cost_usd": 0.0}
    return Job(**{**nothing, **known, **more})


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [((None, None), (1000, 2.0)), ((10, 0.5), (10, 0.5)), ((5000, 9.0), (1000, 2.0)), ((0, 2.0), (1, 2.0))],
    ids=["none", "less", "more", "nothing"],
)
def test_a_run_has_no_more_to_spend_than_its_job(allowed: tuple[Any, Any], expected: tuple[int, float]):
    """A budget of the agent, the day or the fleet limits the run, and never raises its own limit."""
    settings = AgentSettings.model_validate({"limits": {"tokens": 1000, "cost_usd": 2}})
    limits = effective_of(settings, _job(allowed_tokens=allowed[0], allowed_usd=allowed[1])).settings.limits
    assert (limits.tokens, limits.cost_usd) == expected


def test_a_run_without_a_price_limit_gets_the_jobs():
    """For an agent without a limit in dollars, the job's reservation is the run's limit."""
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
    """When the reservation was the limit, the reason names the day's budget and does not advise to raise limits."""
    limits = AgentSettings.model_validate({"limits": {"tokens": 1000}}).limits
    reason = str(LimitReached(limit, allowed=10, used=12))
    assert re.search(expected, reason_within(limits, _job(**left), reason))


def test_a_configuration_of_another_version_is_told():
    """A job whose stored configuration can no longer be read ends with advice."""
    with pytest.raises(InfrastructureFault, match="ringfence job retry"):
        agent_settings(b'{"no": "such key"}', _job())


def test_a_task_without_a_payload_is_left_as_it_is():
    """Braces in a task that was given by hand are no placeholders."""
    assert task_of(b"say {{ payload.x }}", None) == "say {{ payload.x }}"
    assert "main" in task_of(b"say {{ payload.x }}", b'{"x": "main"}')


def test_a_task_is_text_whatever_came_with_its_trigger():
    """An unpaired surrogate in a payload, which JSON can contain but no request can, is replaced."""
    task = task_of(b"say {{ payload.x }}", b'{"x": "<\\ud800>"}')
    assert "<\ufffd>" in task.encode().decode()


@pytest.mark.parametrize(
    ("limit", "job", "rules", "spent", "to"),
    [
        ("tokens", {"allowed_tokens": 1000}, [], Usage(1000, 0), 2000),
        ("tokens", {"allowed_tokens": 1000}, [], Usage(1500, 0), 2500),
        ("tokens", {"tokens": 1500, "allowed_tokens": 1000}, [2500], Usage(1000, 0), 3500),
        ("tokens", {"allowed_tokens": 300}, [], Usage(300, 0), 1000),
        ("cost_usd", {"allowed_usd": 2.0}, [], Usage(0, 2.5), 4.5),
    ],
    ids=["first", "overdrawn", "again", "the day's budget", "dollars"],
)
def test_a_question_about_a_limit_names_the_sum_of_all_attempts(
    limit: str, job: dict[str, Any], rules: list[float], spent: Usage, to: float
):
    """The question proposes the total usage plus the limit, or just the limit if the day's budget was what ran out."""
    settings = AgentSettings.model_validate({"limits": {"tokens": 1000, "cost_usd": 2}})
    granted = [LimitRule(limit="tokens", to=each) for each in rules]
    question = Question("budget", {"limit": limit, "to": 1}, "")
    assert asked_of(question, settings, _job(**job), granted, spent).question.rule == {
        "limit": limit,
        "to": to,
    }


def test_granted_rules_reach_the_run_and_no_more_is_spent_than_the_job_has():
    """Granted rules apply to the run; a raised limit counts for all attempts, so the run gets what is left."""
    rules: list[Rule] = [HostRule(host="a.example", port=443), LimitRule(limit="tokens", to=2000)]
    effective = effective_of(AgentSettings(), _job(tokens=1200, allowed_tokens=800), rules)
    assert [str(rule) for rule in effective.settings.egress.allow] == ["a.example:443"]
    assert effective.settings.limits.tokens == 800


def _answer(question: str, reply: str = "") -> QuestionAnswered:
    return QuestionAnswered(
        question=question, run="r", kind="question", rule={}, answer="allow", scope="run", by="ann", at="t",
        reply=reply,
    )  # fmt: skip


def test_a_resumed_session_reads_the_answer_and_a_new_one_the_task_too():
    """The prompt of a resumed session has the last answer only; a new session's has the task and all answers."""
    answers = [_answer("1", "red"), _answer("2", "blue")]
    resumed = prompt_of("task", answers, InterruptedRun("r", has_asked=True))
    assert ("blue" in resumed, "red" in resumed, "task\n" in resumed) == (True, False, False)
    new = prompt_of("task", answers, None)
    assert new.startswith("task\n\n")
    assert ("red" in new, "blue" in new) == (True, True)
    assert prompt_of("task", [], None) == "task"
