"""Builds the facts about a job that hooks and messages receive."""

from typing import Any, Literal

from ringfence.fleet.config.model import HookPoint
from ringfence.fleet.store.inbox import Entry
from ringfence.fleet.store.job import DONE, Job
from ringfence.job.state import JobState

SCHEMA_VERSION = 1
_TEXT = 4000
_POINTS: dict[JobState, HookPoint] = {
    JobState.SUCCEEDED: "on_success",
    JobState.UNVERIFIED: "on_success",
    JobState.LIMIT: "on_limit",
    JobState.CANCELLED: "on_cancel",
}


def points_of(state: JobState) -> tuple[HookPoint, ...]:
    """The hooks to run for a job in this state: after its end, or while it waits for a person."""
    if state is JobState.WAITING:
        return ("on_waiting",)
    return ("after_run", _POINTS.get(state, "on_failure"))


Need = Literal["question", "blocked", "failed", "apply"]
"""Why a job needs a person: it asks a question; it is blocked; it failed for the last time; its changes are ready."""
_NO_NEED = (*DONE, JobState.CANCELLED, JobState.ENDED)


def need_of(state: JobState, *, has_changes: bool) -> Need | None:
    """Why a job needs a person; None if it does not.

    Args:
        state: The state of the job after its last attempt.
        has_changes: Whether it left changes in a private copy that were not applied.
    """
    if state is JobState.WAITING:
        return "question"
    if state is JobState.BLOCKED:
        return "blocked"
    if state in DONE and has_changes:
        return "apply"
    return None if state in _NO_NEED else "failed"


def facts_of(
    job: Job,
    point: HookPoint,
    answer: str | None,
    *,
    need: Need | None = None,
    question: Entry | None = None,
) -> dict[str, Any]:
    """The facts as values that JSON can represent. Text of the agent is cut at 4,000 characters.

    Args:
        job: The job.
        point: The point at which the hook runs.
        answer: The agent's last message.
        need: Why the job needs a person.
        question: The question whose answer the job waits for.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "event": point,
        "need": need,
        "question": None if question is None else _question(question),
        "job": {
            "id": job.id,
            "agent": job.agent,
            "state": job.state.value,
            "reason": job.reason[:_TEXT],
            "trigger": job.trigger,
            "trigger_name": job.trigger_name,
            "attempt": job.attempt,
            "run_id": job.run_id,
            "created_at": _moment(job.created_at),
            "started_at": _moment(job.started_at),
            "ended_at": _moment(job.ended_at),
            "tokens": job.tokens,
            "cost_usd": round(job.cost_usd, 6),
        },
        "answer": None if answer is None else answer[:_TEXT],
    }


def _question(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "kind": entry.kind,
        "rule": dict(entry.rule),
        "asks": entry.asks,
        "text": entry.text[:_TEXT],
        "deadline": _moment(entry.deadline),
    }


def sentence(facts: dict[str, Any]) -> str:
    """The facts as one line for people."""
    job, question = facts["job"], facts["question"]
    if question is not None:
        command = f"ringfence inbox answer {question['id']} allow|deny"
        return f"{job['agent']} asks {question['asks']}; `{command}` answers it"
    line = f"{job['agent']}: {job['state']}"
    line += f" ({job['reason']})" if job["reason"] else ""
    if facts["need"] == "apply":
        line += f"; its changes are ready: `ringfence apply {job['run_id']}`"
    return line


def _moment(at: Any) -> str | None:
    return None if at is None else at.isoformat()
