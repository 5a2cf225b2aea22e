"""Provides the workspaces of agents: the configured directory, or a clone of the agent's repository."""

import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.fleet.config.model import AgentSettings, RepositorySettings
from ringfence.fleet.store.job import Job
from ringfence.flock import try_lock
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import CLEAN_ATTRIBUTES, LARGE, Git, reached_bound, run_git
from ringfence.sandbox.workspace.run_as import Actor

_FETCH_S = 600.0
_MAX_CLONES = 64
_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_STEERING = frozenset(
    {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_COMMON_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_TEMPLATE_DIR",
        "GIT_QUARANTINE_PATH",
    }
)
"""Variables that git sets for its hooks; a daemon that was started by a git hook inherits them."""


class JobWorkspaces:
    """The workspaces of this machine's agents.

    A clone belongs to a job from its first use until `release`: hooks find the run's changes in it, and no other job
    empties it meanwhile. A worker that continues the hooks of a dead worker finds the clone by the note beside it.

    Args:
        root: The directory for clones, used by nothing else.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, _CloneDirectory] = {}

    @asynccontextmanager
    async def of(
        self,
        job: Job,
        settings: AgentSettings,
        *,
        keep_files: bool = False,
        reserved_for_jobs: Collection[str] = (),
    ) -> AsyncIterator[Path]:
        """A job's workspace, for the duration of the context; a clone belongs to the job until `release`.

        Args:
            job: The job.
            settings: The settings of its agent.
            keep_files: Whether to keep the files that an earlier attempt left: a resumed session knows them.
            reserved_for_jobs: Jobs whose clones no other job may take, although nothing works on them now.

        Raises:
            UsageError: The workspace does not exist.
            InfrastructureFault: The repository cannot be cloned.
        """
        if settings.repository is None:
            workspace = settings.workspace
            if workspace is None or not workspace.is_dir():
                raise UsageError(
                    f"the workspace {str(workspace)!r} of agent {job.agent!r} is no directory here; make it, "
                    "or name another"
                )
            yield workspace
            return
        clone = self._clone_of(job, reserved_for_jobs)
        if not clone.is_of(job, attempt=not keep_files):
            clone.clear_note()
            await anyio.to_thread.run_sync(_empty, clone.work)
            await fetch(settings.repository, clone.work)
        clone.note(job)
        yield clone.work

    def is_there(self, job: Job, settings: AgentSettings) -> bool:
        """Whether the workspace holds the changes of the job's run: its clone is here, and no other job took it."""
        return settings.repository is None or self._clone_of(job).is_of(job)

    def release(self, job_id: str) -> None:
        """Release a job's clone for other jobs."""
        clone = self._held.pop(job_id, None)
        if clone is not None:
            clone.close()

    def _clone_of(self, job: Job, reserved_for_jobs: Collection[str] = ()) -> "_CloneDirectory":
        """A directory that no other job uses: the one with the job's clone, otherwise the first free one."""
        held = self._held.get(job.id)
        if held is not None:
            return held
        name = hashlib.sha256(job.agent.encode()).hexdigest()[:16]
        free: _CloneDirectory | None = None
        for number in range(_MAX_CLONES):
            path = self._root / f"{name}-{number}"
            if free is not None and not path.is_dir():
                break
            clone = _CloneDirectory.take(path)
            if clone is not None and clone.job_id != job.id and clone.job_id in reserved_for_jobs:
                clone.close()
                continue
            if clone is not None and (free is None or clone.is_of(job, attempt=False)):
                if free is not None:
                    free.close()
                free = clone
                if clone.is_of(job, attempt=False):
                    break
            elif clone is not None:
                clone.close()
        if free is None:
            raise InfrastructureFault(
                f"more than {_MAX_CLONES} clones of agent {job.agent!r} are in use here; wait for one"
            )
        self._held[job.id] = free
        return free


class _CloneDirectory:
    """A directory with a clone, locked until `close`."""

    def __init__(self, path: Path, lock: BinaryIO) -> None:
        self.work = path / "work"
        self._note = path / "job"
        self._lock = lock

    @classmethod
    def take(cls, path: Path) -> "_CloneDirectory | None":
        """Lock a directory; None if another job has it."""
        lock = (make_private_dir(path) / "lock").open("wb")
        if try_lock(lock.fileno(), fcntl.LOCK_EX, what=f"{str(path)!r}"):
            return cls(path, lock)
        lock.close()
        return None

    def close(self) -> None:
        """Unlock the directory for other jobs."""
        self._lock.close()

    @property
    def job_id(self) -> str | None:
        """The job whose clone the directory holds; None if it holds none."""
        try:
            return self._note.read_text().partition(" ")[0]
        except FileNotFoundError:
            return None

    def is_of(self, job: Job, *, attempt: bool = True) -> bool:
        """Whether the clone belongs to a job: to its current attempt, or to any."""
        try:
            noted = self._note.read_text()
        except FileNotFoundError:
            return False
        return noted == _note_of(job) if attempt else noted.partition(" ")[0] == job.id

    def note(self, job: Job) -> None:
        """Record the job and attempt that the clone belongs to."""
        self._note.write_text(_note_of(job))

    def clear_note(self) -> None:
        """Record that the clone belongs to no job."""
        self._note.unlink(missing_ok=True)


def _note_of(job: Job) -> str:
    return f"{job.id} {job.attempt}\n"


def clones_dir(state: Path) -> Path:
    """The directory for the clones of a state directory's fleet, below `$XDG_CACHE_HOME/ringfence/clones`.

    It is not in the state directory, because no workspace may lie among the records.
    """
    import platformdirs

    name = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
    return make_private_dir(Path(platformdirs.user_cache_dir("ringfence")) / "clones" / name)


async def fetch(repository: RepositorySettings, place: Path) -> None:
    """Fetch a repository into an empty directory. Its hooks, filters and submodules have no effect.

    The fetch uses the network and the credentials of the user's own git.

    Raises:
        InfrastructureFault: The repository cannot be reached, or lacks the ref.
    """
    git_dir = place / ".git"
    await _run_plain_git(place, "init", "--quiet", "--template=", "--initial-branch=work", str(place))
    depth = [f"--depth={repository.depth}"] if repository.depth else []
    what = f"{repository.ref or 'HEAD'}:refs/heads/work"
    await _run_plain_git(
        place, "fetch", "--quiet", "--no-tags", "--update-head-ok", *depth, "--", repository.url, what
    )
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_bytes(CLEAN_ATTRIBUTES)
    await Git(git_dir, work_tree=place).run("read-tree", "--reset", "-u", "HEAD", timeout_s=_FETCH_S)
    (git_dir / "info" / "attributes").unlink()


async def apply_private_copy(run: Path, log: Callable[[str], None]) -> None:
    """Apply a run's changes from its private copy to the clone that was copied, so that later steps find them."""
    from ringfence.job.interrupted_runs import completed_work
    from ringfence.sandbox.workspace.record import apply_run, has_record

    if not has_record(run):
        return
    try:
        record, _ = await completed_work(run)
        if record.mode == "clone":
            await apply_run(record, state_dir(), force=True)
    except RingfenceError as exc:
        log(
            f"the changes of its run could not be applied to its clone: {exc}; see `ringfence diff {run.name[-8:]}`"
        )


async def _run_plain_git(place: Path, *arguments: str) -> None:
    result = await run_git(
        [*(argument for option in _OPTIONS for argument in ("-c", option)), *arguments],
        cwd=place,
        env=_environment(),
        actor=Actor.current(),
        timeout_s=_FETCH_S,
        bounds=LARGE,
    )
    bound = reached_bound(result)
    if bound is not None or not result.ok:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"it reached its limit of {bound}" if bound else lines[-1] if lines else "it gave no reason"
        raise InfrastructureFault(
            f"git {arguments[0]} failed: {why}; check the repository's url and ref, and your access to it"
        )


def _environment() -> dict[str, str]:
    """The environment of this process, without variables that would make git use another repository."""
    kept = {name: value for name, value in os.environ.items() if name not in _STEERING}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _empty(place: Path) -> None:
    if os.path.lexists(place):
        remove_tree(place)
    make_private_dir(place)
