"""Derives the settings, prompt and session of a job's run from the configuration stored with the job."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ringfence.config.document import DEFAULT, Origin
from ringfence.config.effective import Effective
from ringfence.config.fields import all_fields
from ringfence.config.model import LimitSettings, Settings
from ringfence.errors import InfrastructureFault
from ringfence.events import QuestionAnswered
from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.prompt_template import PromptTemplate
from ringfence.fleet.store.agents import AgentState
from ringfence.fleet.store.attempts import InterruptedRun
from ringfence.fleet.store.inbox import AskedQuestion
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.spend import Usage
from ringfence.job.question import Question, Rule, continuation, with_rules
from ringfence.job.resumed_run import ResumeRequest
from ringfence.tool.text import replace_surrogates


def agent_settings(content: bytes | None, job: Job) -> AgentSettings:
    """The agent's configuration that was stored with a job.

    Raises:
        InfrastructureFault: No configuration is stored, or another version of ringfence wrote it.
    """
    try:
        return AgentSettings.model_validate_json(content or b"")
    except ValueError as exc:
        raise InfrastructureFault(
            f"the configuration stored with job {job.id!r} cannot be read: {exc}; `ringfence job retry` adds it again"
        ) from exc


def effective_of(settings: AgentSettings, job: Job, rules: Sequence[Rule] = ()) -> Effective:
    """The agent's settings as settings of a run, which may spend no more than what is reserved for the job.

    Args:
        settings: The agent's settings.
        job: The job.
        rules: Rules that a person granted to the job, or to the agent.
    """
    effective = effective_settings(settings, job.agent)
    granted = with_rules(effective.settings, rules)
    limits = within(granted.limits, job)
    return replace(effective, settings=granted.model_copy(update={"limits": limits}))


def asked_of(
    question: Question, settings: AgentSettings, job: Job, rules: Sequence[Rule], spent: Usage
) -> AskedQuestion:
    """The question of a job's attempt, in the form in which it is added to the inbox.

    The limits of an agent hold for all attempts at a job together, so a question about a limit names the new total: the
    usage so far plus the agent's limit. If only the day's budget was exhausted, it names the limit unchanged, and the
    job then waits for the next day's budget.

    Args:
        question: The question of the run.
        settings: The agent's settings.
        job: The job as it was when the attempt began.
        rules: Rules that were granted before.
        spent: The usage of the attempt.
    """
    if question.kind != "budget":
        return AskedQuestion(question, settings.ask.deadline)
    limit = str(question.rule["limit"])
    base, own = getattr(settings.limits, limit), getattr(with_rules(settings, rules).limits, limit)
    before, allowed, used = (
        (float(job.tokens), job.allowed_tokens, float(spent.tokens))
        if limit == "tokens"
        else (job.cost_usd, job.allowed_usd, spent.cost_usd)
    )
    if own is not None and allowed is not None and 0 < allowed < own - before:
        to = own
    else:
        to = max(own or 0, before + used) + (base or question.rule["to"])
    return AskedQuestion(replace(question, rule={"limit": limit, "to": to}), settings.ask.deadline)


def prompt_of(task: str, answers: Sequence[QuestionAnswered], resumed: InterruptedRun | None) -> str:
    """The prompt of an attempt: the task, or a person's answer to the run that is resumed.

    Args:
        task: The job's task.
        answers: The answers to the job's questions, the first one first.
        resumed: The run that the attempt resumes.
    """
    if resumed is not None and resumed.has_asked and answers:
        return continuation(answers[-1])
    return "\n\n".join([task, *map(continuation, answers)])


def effective_settings(settings: AgentSettings, agent: str) -> Effective:
    """An agent's settings as settings of a run."""
    explicit = settings.model_dump(
        mode="json", include=set(Settings.model_fields), exclude_unset=True, by_alias=True
    )
    run = Settings.model_validate(explicit)
    origin = Origin("project", name=f"agent {agent}")
    origins = {
        key: origin if _is_set(explicit, field.path) else DEFAULT for key, field in all_fields().items()
    }
    for key, field in all_fields().items():
        if field.is_mapping:
            below = _value(explicit, field.path) or {}
            origins |= {f"{key}.{name}": origin for name in below}
    return Effective(run, origins, ())


def within(limits: LimitSettings, job: Job) -> LimitSettings:
    """Limits lowered to what is reserved for a job."""
    changes: dict[str, Any] = {}
    if job.allowed_tokens is not None:
        changes["tokens"] = max(1, min(limits.tokens, job.allowed_tokens))
    if job.allowed_usd is not None:
        changes["cost_usd"] = min(
            job.allowed_usd if limits.cost_usd is None else limits.cost_usd, job.allowed_usd
        )
    return limits.model_copy(update=changes)


def reason_within(limits: LimitSettings, job: Job, reason: str) -> str:
    """The reason of a run's end. If the rest of a budget was the limit, it names no option, as none would raise it."""
    bounds = {
        "tokens": (limits.tokens - job.tokens, job.allowed_tokens),
        "cost_usd": (
            None if limits.cost_usd is None else limits.cost_usd - job.cost_usd,
            job.allowed_usd,
        ),
    }
    for name, (own, left) in bounds.items():
        reached, _, _ = reason.partition(";")
        if (
            reached.startswith(f"limit {name!r} reached: ")
            and left is not None
            and (own is None or left < own)
        ):
            return f"{reached}; the day's budget had no more left for it"
    return reason


def task_of(prompt: bytes | None, payload: bytes | None) -> str:
    """The task, with the payload of its trigger filled in.

    Raises:
        UsageError: The task names a value that the payload lacks.
    """
    text = (prompt or b"").decode("utf-8", "surrogateescape")
    if payload is None:
        return text
    # JSON from outside can contain lone surrogates, which no model request can carry.
    return PromptTemplate(text).render({"payload": replace_surrogates(json.loads(payload))})


def session_to_resume(
    settings: AgentSettings, state: AgentState, job: Job, *, host: str
) -> ResumeRequest | None:
    """The session that a job resumes, by the agent's policy; None for a new session."""
    if job.session_id is not None:
        return ResumeRequest(job.session_id, is_forked=job.trigger == "fork")
    policy = settings.session
    if policy.policy == "fresh" or state.session_run_id is None or state.session_host != host:
        return None
    is_old = state.session_used_at is None or datetime.now(UTC) - state.session_used_at > timedelta(
        seconds=policy.within
    )
    if policy.policy == "resume" and is_old:
        return None
    return ResumeRequest(state.session_run_id)


def _is_set(explicit: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = explicit
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _value(explicit: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    return explicit if not path else _value(explicit.get(path[0]) or {}, path[1:])
