"""What hooks and messages are told of a job."""

from typing import Any

from ringfence.fleet.config.model import HookPoint
from ringfence.fleet.store.job import Job
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
    """Which hooks a job's end calls for, or that it waits for a person."""
    if state is JobState.WAITING:
        return ("on_waiting",)
    return ("after_run", _POINTS.get(state, "on_failure"))


def facts_of(job: Job, point: HookPoint, answer: str | None) -> dict[str, Any]:
    """The facts, as JSON can say them. Text of the agent is cut at 4,000 characters."""
    return {
        "schema_version": SCHEMA_VERSION,
        "event": point,
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


def sentence(facts: dict[str, Any]) -> str:
    """The same as a line for people."""
    job = facts["job"]
    return (
        f"{job['agent']}: {job['state']} ({job['reason']})"
        if job["reason"]
        else f"{job['agent']}: {job['state']}"
    )


def _moment(at: Any) -> str | None:
    return None if at is None else at.isoformat()
