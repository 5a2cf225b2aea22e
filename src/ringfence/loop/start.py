"""Beginning a loop: everything that can be wrong is told before anything is made or any agent started."""

import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
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
from ringfence.journal import new_run_id
from ringfence.loop.configuration import kept
from ringfence.loop.credentials import check_credentials, check_players
from ringfence.loop.directory import LoopDirectory, loop_places, new_loop_id
from ringfence.loop.plans import plan_from_json, plan_to_json
from ringfence.loop.repository import Look, LoopRepository, Tree, look
from ringfence.loop.rows import LoopRow, StepRow, StoryRow
from ringfence.loop.selection import root_of
from ringfence.loop.settings import CheckSettings, LoopSettings
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore, create_database, now_ms, open_store, read_overview
from ringfence.loop.story import Plan, Story, check_plan, questions

Notify = Callable[[str], None]
_OTHERS_S = 60.0


@frozen
class Begun:
    """A loop that this process holds, and can work on."""

    place: LoopDirectory
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
) -> AsyncIterator[Begun]:
    """Enter a loop: its repository is made, its stories are known. It is held until the context ends.

    Args:
        plan: The stories.
        source: The user's repository, or a directory in it.
        effective: The configuration of its runs.
        settings: Of the loop.
        notify: Called with each line that the user should read.
        done: What was done for it before, and counts in its bounds.

    Raises:
        UsageError: Another loop of this repository has not ended; or it is none that a loop can start from.
        ConfigurationError: Something about the stories or the checks is wrong.
        AuthenticationFailed: A credential that a role needs is missing, or refused.
    """
    source = await anyio.to_thread.run_sync(source.resolve)
    with ExitStack() as held:
        async with one_at_a_time(source):
            begun = await _begin(plan, source, effective, settings, notify, done, held)
        yield begun


@asynccontextmanager
async def reopen(place: LoopDirectory, settings: LoopSettings) -> AsyncIterator[Begun]:
    """Hold a loop that was begun before, until the context ends.

    Raises:
        UsageError: Another process works on it.
        ConfigurationError: Nothing runs tests.
        RepositoryRemoved: Its repository was removed.
    """
    with open_store(place) as store:
        repository = LoopRepository.open(place.clones)
        yield Begun(place, store, repository, await _checks_of(repository, store.loop, settings))


async def _begin(
    plan: Plan,
    source: Path,
    effective: Effective,
    settings: LoopSettings,
    notify: Notify,
    done: Sequence[StepRow],
    held: ExitStack,
) -> Begun:
    found = await check_start(source, effective, settings)
    for each in (*found.notes, *questions(plan)):
        notify(each)
    place = LoopDirectory(new_loop_id(), state_dir())
    repository = await LoopRepository.make(found, place.clones, loop=place.id)
    try:
        tree = await repository.files(repository.base)
        checks = checks_for(settings, plan, tree, notify)
        problems = check_plan(plan, has_check=bool(checks))
        if problems:
            raise ConfigurationError("; ".join(problems), file=plan.source)
        await check_credentials(effective, settings, source, notify)
        held.enter_context(place.held())
        store = held.enter_context(
            closing(_enter(place, plan, source, repository, effective, settings, done))
        )
    except BaseException:
        await repository.clean()
        raise
    return Begun(place, store, repository, checks)


async def check_start(source: Path, effective: Effective, settings: LoopSettings) -> Look:
    """Check that a loop can start on a repository, whatever its stories are, before anything is made.

    Args:
        source: The user's repository, or a directory in it, resolved.
        effective: The configuration of the loop's runs.
        settings: Of the loop.

    Raises:
        UsageError: Another loop of the repository has not ended, no loop can start from it, or `--merge` has no branch.
        ConfigurationError, PolicyRefused: As `check_players`.
    """
    await refuse_second(source)
    await check_players(effective, settings, source)
    found = await look(source, base=settings.base)
    check_merge_target(settings, found)
    return found


def check_merge_target(settings: LoopSettings, found: Look) -> None:
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
    """See that no loop of a repository is at work or can be gone on with.

    Raises:
        UsageError: One is.
    """
    root = await anyio.to_thread.run_sync(root_of, source)
    for place in loop_places():
        row, stories = read_overview(place)
        is_begun = any(story.base for story in stories)
        is_open = row.state is LoopState.RUNNING or (not row.state.is_closed and is_begun)
        if is_open and await anyio.to_thread.run_sync(root_of, Path(row.source)) == root:
            is_busy = place.is_worked_on
            state = "interrupted" if row.state is LoopState.RUNNING else row.state.value
            how = "is at work" if is_busy else f"has not come to its end ({state})"
            command = "logs --follow" if is_busy else "resume"
            raise UsageError(
                f"loop {place.id} of {row.source!r} {how}; `ringfence loop {command} {place.id[-6:]}` "
                f"or `ringfence loop cancel {place.id[-6:]}`, then start another"
            )


@asynccontextmanager
async def one_at_a_time(source: Path) -> AsyncIterator[None]:
    """See that nobody else begins a loop on the same repository meanwhile.

    Raises:
        UsageError: Somebody does, and is not done.
    """
    root = await anyio.to_thread.run_sync(root_of, source)
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    with (make_private_dir(state_dir() / "loops") / f"begin-{name}.lock").open("wb") as lock:
        deadline = anyio.current_time() + _OTHERS_S
        while not try_lock(lock.fileno(), fcntl.LOCK_EX, what="the lock of those who begin loops"):
            if anyio.current_time() > deadline:
                raise UsageError(
                    f"another process is beginning a loop on {str(root)!r}; see `ringfence loop ls`"
                )
            await anyio.sleep(0.05)
        yield


def checks_for(settings: LoopSettings, plan: Plan, tree: Tree, notify: Notify) -> tuple[Check, ...]:
    """What decides about every story: as configured, as the stories' file says, or as the project's files suggest.

    Raises:
        ConfigurationError: Nothing runs tests.
    """
    if settings.checks is not None:
        return tuple(_check(number, check) for number, check in enumerate(settings.checks, start=1))

    def read(path: str) -> bytes | None:
        item = tree.read(path)
        return item.data if item is not None and item.is_file else None

    found = detect(tree.files, read, commands=dict(plan.checks.items()))
    for line in found.lacking:
        notify(line)
    return found.checks


async def _checks_of(repository: LoopRepository, row: LoopRow, settings: LoopSettings) -> tuple[Check, ...]:
    """What decides about the stories of a loop that is gone on with."""
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


def _enter(
    place: LoopDirectory,
    plan: Plan,
    source: Path,
    repository: LoopRepository,
    effective: Effective,
    settings: LoopSettings,
    done: Sequence[StepRow],
) -> LoopStore:
    place.make()
    now = now_ms()
    row = LoopRow(
        id=place.id, source=str(source), state=LoopState.RUNNING, reason="", plan=plan_to_json(plan),
        configuration=kept(effective, settings), base=repository.base, branch=f"ringfence/loop-{place.id}",
        record=new_run_id(),
        round=1, created_ms=now, begun_ms=now, ended_ms=None,
    )  # fmt: skip
    stories = [
        StoryRow(
            loop=place.id, id=story.id, position=number, state=_state(story), reason=_reason(story), generation=1,
            attempt=0, stage="", slot=None, base=None, tests=None, tip=None, merged=None,
        )
        for number, story in enumerate(plan.ordered())
    ]  # fmt: skip
    create_database(place, row, stories, done)
    return LoopStore(place.database, place.id)


def _state(story: Story) -> StoryState:
    if story.is_done:
        return StoryState.PASSED
    return StoryState.BLOCKED if story.question else StoryState.WAITING


def _reason(story: Story) -> str:
    return "done before the loop began" if story.is_done else story.question or ""
