"""From a job to what its run is asked: its agent's configuration as stored with it, within its budget."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ringfence.config.document import DEFAULT, Origin
from ringfence.config.effective import Effective
from ringfence.config.fields import all_fields
from ringfence.config.model import LimitSettings, Settings
from ringfence.errors import InfrastructureFault
from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.prompt_template import PromptTemplate
from ringfence.fleet.store.agents import AgentState
from ringfence.fleet.store.job import Job
from ringfence.job.resumed_run import ResumeRequest
from ringfence.tool.text import replace_surrogates


def agent_settings(content: bytes | None, job: Job) -> AgentSettings:
    """The agent's configuration that was stored with a job.

    Raises:
        InfrastructureFault: There is none, or another version of ringfence wrote it.
    """
    try:
        return AgentSettings.model_validate_json(content or b"")
    except ValueError as exc:
        raise InfrastructureFault(
            f"the configuration stored with job {job.id!r} cannot be read: {exc}; `ringfence job retry` enters it anew"
        ) from exc


def effective_of(settings: AgentSettings, job: Job) -> Effective:
    """The agent's settings as those of a run, with no more to spend than was set aside for the job."""
    effective = effective_settings(settings, job.agent)
    limits = within(effective.settings.limits, job)
    return replace(effective, settings=effective.settings.model_copy(update={"limits": limits}))


def effective_settings(settings: AgentSettings, agent: str) -> Effective:
    """An agent's settings as those of a run."""
    said = settings.model_dump(
        mode="json", include=set(Settings.model_fields), exclude_unset=True, by_alias=True
    )
    run = Settings.model_validate(said)
    origin = Origin("project", name=f"agent {agent}")
    origins = {key: origin if _is_said(said, field.path) else DEFAULT for key, field in all_fields().items()}
    for key, field in all_fields().items():
        if field.is_mapping:
            below = _value(said, field.path) or {}
            origins |= {f"{key}.{name}": origin for name in below}
    return Effective(run, origins, ())


def within(limits: LimitSettings, job: Job) -> LimitSettings:
    """Limits that are no larger than what was set aside for a job."""
    changes: dict[str, Any] = {}
    if job.allowed_tokens is not None:
        changes["tokens"] = max(1, min(limits.tokens, job.allowed_tokens))
    if job.allowed_usd is not None:
        changes["cost_usd"] = min(
            job.allowed_usd if limits.cost_usd is None else limits.cost_usd, job.allowed_usd
        )
    return limits.model_copy(update=changes)


def reason_within(limits: LimitSettings, job: Job, reason: str) -> str:
    """Why a run ended; where what a budget had left was its limit, no option of the run would raise that."""
    bounds = {"tokens": (limits.tokens, job.allowed_tokens), "cost_usd": (limits.cost_usd, job.allowed_usd)}
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
    """The task, with what came with its trigger put in.

    Raises:
        UsageError: It names what did not come.
    """
    text = (prompt or b"").decode("utf-8", "surrogateescape")
    if payload is None:
        return text
    # JSON from outside can spell halves of surrogate pairs, which fit into no request to a model.
    return PromptTemplate(text).render({"payload": replace_surrogates(json.loads(payload))})


def session_to_resume(
    settings: AgentSettings, state: AgentState, job: Job, *, host: str
) -> ResumeRequest | None:
    """The session that a job goes on with, by the agent's policy; None for a new one."""
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


def _is_said(said: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = said
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _value(said: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    return said if not path else _value(said.get(path[0]) or {}, path[1:])
