"""Starts and reopens loops. Every problem is reported before anything is created or an agent is started."""

import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

import anyio.to_thread

from ringfence.check import Check, detect
from ringfence.check.runner.registry import runner_of
from ringfence.config import Effective
from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import ConfigurationError, UsageError
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.job.request import Notify
from ringfence.journal import new_run_id
from ringfence.loop.configuration import kept
from ringfence.loop.credentials import check_credentials, check_roles
from ringfence.loop.directory import LoopDirectory, loop_directories, new_loop_id
from ringfence.loop.journal import open_with_record
from ringfence.loop.plans import plan_from_json, plan_to_json
from ringfence.loop.repository import Inspection, LoopRepository, Tree, inspect_repository
from ringfence.loop.rows import LoopRow, StepRow, StoryRow
from ringfence.loop.selection import root_of
from ringfence.loop.settings import CheckSettings, LoopSettings
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore, create_database, now_ms, read_overview
from ringfence.loop.story import Plan, Story, check_plan, questions

_START_LOCK_S = 60.0


@frozen
class StartedLoop:
    """A loop whose lock this process holds, so that it can work on the loop."""

    directory: LoopDirectory
    store: LoopStore
    repository: LoopRepository
    checks: tuple[Check, ...]


@asynccontextmanager
async def begin(
    plan: Plan,
    source: Path,
    *,
    effective: Effective,
    settings: LoopSettings,
    notify: Notify,
    done: Sequence[StepRow] = (),
) -> AsyncIterator[StartedLoop]:
    """Create a loop with its repository and its database, and hold its lock until the context ends.

    Args:
        plan: The stories.
        source: The user's repository, or a directory in it.
        effective: The configuration of the loop's runs.
        settings: The loop's settings.
        notify: Called with each line that the user should read.
        done: Steps completed before the loop was created; their usage counts towards its limits.

    Raises:
        UsageError: Another loop of this repository has not ended, or a loop cannot start from this repository.
        ConfigurationError: The stories or the checks are wrong.
        AuthenticationFailed: A credential that a role needs is missing, or the provider rejects it.
    """
    source = await anyio.to_thread.run_sync(source.resolve)
    with ExitStack() as held:
        async with start_lock(source):
            started = await _begin(plan, source, effective, settings, notify, done, held)
        yield started


@asynccontextmanager
async def reopen(directory: LoopDirectory, settings: LoopSettings) -> AsyncIterator[StartedLoop]:
    """Open a loop that an earlier process started, and hold its lock until the context ends.

    Raises:
        UsageError: Another process works on it.
        ConfigurationError: None of its checks runs tests.
        RepositoryRemoved: Its repository was removed.
    """
    with open_with_record(directory) as store:
        repository = LoopRepository.open(directory.repository_dir)
        yield StartedLoop(directory, store, repository, await _checks_of(repository, store.loop, settings))


async def _begin(
    plan: Plan,
    source: Path,
    effective: Effective,
    settings: LoopSettings,
    notify: Notify,
    done: Sequence[StepRow],
    held: ExitStack,
) -> StartedLoop:
    found = await check_start(source, effective, settings)
    for each in (*found.notes, *questions(plan)):
        notify(each)
    directory = LoopDirectory(new_loop_id(), state_dir())
    repository = await LoopRepository.make(found, directory.repository_dir, loop=directory.id)
    try:
        tree = await repository.files(repository.base)
        checks = checks_for(settings, plan, tree, notify)
        problems = check_plan(plan, has_check=bool(checks))
        if problems:
            raise ConfigurationError("; ".join(problems), file=plan.source)
        await check_credentials(effective, settings, source, notify)
        held.enter_context(directory.held())
        store = held.enter_context(
            closing(_create_store(directory, plan, source, repository, effective, settings, done))
        )
    except BaseException:
        await repository.clean()
        raise
    return StartedLoop(directory, store, repository, checks)


async def check_start(source: Path, effective: Effective, settings: LoopSettings) -> Inspection:
    """Check that a loop with any stories can start on a repository, before anything is created.

    Args:
        source: The user's repository, or a directory in it, resolved.
        effective: The configuration of the loop's runs.
        settings: The loop's settings.

    Raises:
        UsageError: Another loop of the repository has not ended, no loop can start from it, or `--merge` has no branch.
        ConfigurationError, PolicyRefused: As `check_roles`.
    """
    await refuse_second(source)
    await check_roles(effective, settings, source)
    found = await inspect_repository(source, base=settings.base)
    check_merge_target(settings, found)
    return found


def check_merge_target(settings: LoopSettings, found: Inspection) -> None:
    """Check that `--merge` has a branch to fast-forward at the end.

    Raises:
        UsageError: HEAD is on no branch, or another commit to start from is named.
    """
    if not settings.merge or found.branch is not None:
        return
    if settings.base is not None:
        raise UsageError(
            f"--merge (`loop.merge`) moves the branch that is checked out, and --base {settings.base!r} starts from "
            "another commit; leave one of them out"
        )
    raise UsageError(
        f"--merge (`loop.merge`) has no branch to move: HEAD of {str(found.source.root)!r} is on none; check out a "
        "branch (`git switch NAME`), or leave it out"
    )


async def refuse_second(source: Path) -> None:
    """Check that no other loop of a repository is running or can be resumed.

    Raises:
        UsageError: Another loop is running or can be resumed.
    """
    root = await anyio.to_thread.run_sync(root_of, source)
    for directory in loop_directories():
        row, stories = read_overview(directory)
        has_started = any(story.base for story in stories)
        is_open = row.state is LoopState.RUNNING or (not row.state.is_closed and has_started)
        if is_open and await anyio.to_thread.run_sync(root_of, Path(row.source)) == root:
            is_running = directory.is_worked_on
            state = "interrupted" if row.state is LoopState.RUNNING else row.state.value
            how = "is running" if is_running else f"has not come to its end ({state})"
            command = "logs --follow" if is_running else "resume"
            raise UsageError(
                f"loop {directory.id} of {row.source!r} {how}; `ringfence loop {command} {directory.id[-6:]}` "
                f"or `ringfence loop cancel {directory.id[-6:]}`, then start another"
            )


@asynccontextmanager
async def start_lock(source: Path) -> AsyncIterator[None]:
    """Hold the lock under which a loop on a repository is started, so that no two are started at once.

    Raises:
        UsageError: Another process holds the lock for a minute.
    """
    root = await anyio.to_thread.run_sync(root_of, source)
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    with (make_private_dir(state_dir() / "loops") / f"begin-{name}.lock").open("wb") as lock:
        deadline = anyio.current_time() + _START_LOCK_S
        while not try_lock(lock.fileno(), fcntl.LOCK_EX, what="the lock for starting loops"):
            if anyio.current_time() > deadline:
                raise UsageError(
                    f"another process is starting a loop on {str(root)!r}; see `ringfence loop ls`"
                )
            await anyio.sleep(0.05)
        yield


def checks_for(settings: LoopSettings, plan: Plan, tree: Tree, notify: Notify) -> tuple[Check, ...]:
    """Return the checks of every story: as configured, or those of the stories' file and those that were detected.

    Raises:
        ConfigurationError: None of them runs tests.
    """
    if settings.checks is not None:
        return tuple(_check(number, check) for number, check in enumerate(settings.checks, start=1))

    def read(path: str) -> bytes | None:
        item = tree.read(path)
        return item.data if item is not None and item.is_file else None

    found = detect(tree.files, read, commands=dict(plan.checks.items()))
    for line in found.missing_checks:
        notify(line)
    return found.checks


async def _checks_of(repository: LoopRepository, row: LoopRow, settings: LoopSettings) -> tuple[Check, ...]:
    """Return the checks of a loop that is reopened."""
    tree = await repository.files(row.base)
    return checks_for(settings, plan_from_json(row.plan), tree, lambda _line: None)


def _check(number: int, check: CheckSettings) -> Check:
    return Check(
        kind=check.kind,
        name=f"{check.kind} {number}",
        command=check.command,
        timeout_s=check.timeout,
        runner=check.runner or (runner_of(check.command) if check.kind == "test" else None),
    )


def _create_store(
    directory: LoopDirectory,
    plan: Plan,
    source: Path,
    repository: LoopRepository,
    effective: Effective,
    settings: LoopSettings,
    done: Sequence[StepRow],
) -> LoopStore:
    directory.make()
    now = now_ms()
    row = LoopRow(
        id=directory.id, source=str(source), state=LoopState.RUNNING, reason="", plan=plan_to_json(plan),
        configuration=kept(effective, settings), base=repository.base, branch=f"ringfence/loop-{directory.id}",
        record_run_id=new_run_id(), round=1, created_ms=now, started_ms=now, ended_ms=None,
    )  # fmt: skip
    stories = [
        StoryRow(
            loop=directory.id, id=story.id, position=number, state=_state(story), reason=_reason(story), generation=1,
            attempt=0, stage="", slot=None, base=None, tests_commit=None, code_commit=None,
            merged_commit=None,
        )
        for number, story in enumerate(plan.ordered())
    ]  # fmt: skip
    create_database(directory, row, stories, done)
    return LoopStore(directory.database, directory.id)


def _state(story: Story) -> StoryState:
    if story.is_done:
        return StoryState.PASSED
    return StoryState.BLOCKED if story.question else StoryState.WAITING


def _reason(story: Story) -> str:
    return "done before the loop began" if story.is_done else story.question or ""
