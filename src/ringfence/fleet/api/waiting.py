"""Why jobs are still queued, as the daemon knows it."""

from ringfence.fleet.api.models import JobAnswer, job_answer
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.job import Job
from ringfence.job.state import JobState


def answer_job(daemon: Daemon, job: Job) -> JobAnswer:
    """A job, with the reason why it is still queued."""
    waiting = daemon.dispatcher.waiting
    why = (
        why_disabled(daemon, job.agent)
        or waiting.get(job.agent)
        or waiting.get(job.workspace)
        or waiting.get("")
    )
    return job_answer(job, why if job.state is JobState.QUEUED else None)


def why_disabled(daemon: Daemon, name: str) -> str | None:
    """Why none of an agent's jobs starts, by the configuration; None if they may."""
    agent = daemon.fleet.agents.get(name)
    if agent is None:
        return "there is no such agent any more"
    return None if agent.settings.is_enabled else "the agent is disabled by its configuration"
