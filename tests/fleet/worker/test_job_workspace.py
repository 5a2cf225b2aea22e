"""The clone of its agent's repository that a job works in, and which files it contains."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.store.job import Job
from ringfence.fleet.worker.job_workspace import JobWorkspaces
from ringfence.job.state import JobState


def _attempt(number: int, job: str = "j1") -> Job:
    nothing: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    known = {"id": job, "agent": "a", "state": JobState.RUNNING, "created_at": datetime.now(UTC)}
    return Job(**{**nothing, **known, "attempt": number})


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    """Settings of an agent with a repository."""
    place = tmp_path / "repository"
    for words in (
        ["init", "-q", "-b", "main", str(place)],
        [
            "-C",
            str(place),
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@t",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "1",
        ],
    ):
        subprocess.run(["git", *words], check=True)
    return AgentSettings.model_validate({"repository": {"url": str(place)}})


async def _left(workspaces: JobWorkspaces, settings: AgentSettings, job: Job) -> None:
    """Leave the state of a worker that dies in the middle of an attempt."""
    async with workspaces.of(job, settings) as clone:
        (clone / "made").write_text("by the first")
    workspaces.release(job.id)  # as the end of its process does


@pytest.mark.parametrize(("keep_files", "is_kept"), [(True, True), (False, False)])
async def test_another_attempt_has_a_new_clone_unless_it_goes_on(
    tmp_path: Path, settings: AgentSettings, keep_files: bool, is_kept: bool
):
    """An attempt that resumes a session finds the files of the last attempt; a new one finds none of them."""
    await _left(JobWorkspaces(tmp_path / "clones"), settings, _attempt(1))
    workspaces = JobWorkspaces(tmp_path / "clones")
    async with workspaces.of(_attempt(2), settings, keep_files=keep_files) as clone:
        assert (clone / "made").exists() == is_kept
    async with workspaces.of(_attempt(2), settings) as again:
        assert (again == clone, (again / "made").exists()) == (True, is_kept)
    workspaces.release("j1")


async def test_another_jobs_clone_is_never_gone_on_with(tmp_path: Path, settings: AgentSettings):
    """A job never finds another job's files, even if it asks to resume."""
    await _left(JobWorkspaces(tmp_path / "clones"), settings, _attempt(1, "j0"))
    workspaces = JobWorkspaces(tmp_path / "clones")
    async with workspaces.of(_attempt(2), settings, keep_files=True) as clone:
        assert not (clone / "made").exists()
    workspaces.release("j1")


async def test_the_clone_of_a_job_that_waits_is_given_to_no_other(tmp_path: Path, settings: AgentSettings):
    """The clone of a waiting job is not given to others, and its next attempt finds its files there."""
    await _left(JobWorkspaces(tmp_path / "clones"), settings, _attempt(1))
    others = JobWorkspaces(tmp_path / "clones")
    async with others.of(_attempt(1, "j2"), settings, reserved_for_jobs={"j1"}) as other:
        assert not (other / "made").exists()
    others.release("j2")
    workspaces = JobWorkspaces(tmp_path / "clones")
    async with workspaces.of(_attempt(2), settings, keep_files=True, reserved_for_jobs={"j1"}) as clone:
        assert (clone != other, (clone / "made").exists()) == (True, True)
    workspaces.release("j1")
