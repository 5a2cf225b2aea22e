"""Start, resume, retry, cancel, remove and check loops, once the command line is parsed."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.output import counted, notify, print_answer
from ringfence.errors import RingfenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from ringfence.check import Check
    from ringfence.config import Effective, Flag
    from ringfence.loop.directory import LoopDirectory
    from ringfence.loop.draft import Draft
    from ringfence.loop.preflight import Preflight
    from ringfence.loop.rows import LoopRow, StepRow
    from ringfence.loop.settings import LoopSettings
    from ringfence.loop.start import StartedLoop
    from ringfence.loop.story import Plan


def start_loop(
    prd: Path | None,
    goal: str | None,
    workspace: Path,
    effective: "Effective",
    flags: "list[Flag]",
    *,
    is_approved: bool,
    json: bool,
) -> int:
    """Start a loop, run it to its end and return its exit code.

    Raises:
        RingfenceError: The loop could not be started.
    """
    import anyio

    from ringfence.loop.configuration import load_loop
    from ringfence.loop.draft import draft
    from ringfence.loop.pull_request import gh_program
    from ringfence.loop.start import check_start
    from ringfence.loop.story import read_plan

    if (prd is None) == (goal is None):
        raise UsageError(
            "give the stories once: by PRD or --prd FILE, or as a --goal from which they are drafted"
        )
    if goal is not None and not goal.strip():
        raise UsageError("--goal is empty; describe the goal, or give stories by --prd FILE")
    settings = load_loop(effective, flags)
    if settings.pr:
        gh_program(workspace)
    if goal is not None:
        if not is_approved and not sys.stdin.isatty():
            raise UsageError(
                "the planner's stories need your approval: add --yes, or run the command on a terminal"
            )
        anyio.run(check_start, workspace.resolve(), effective, settings)  # before a planner causes cost
        drafted = anyio.run(draft, goal, workspace, effective, settings, notify)
        plan, done = _approve_stories(drafted, is_approved=is_approved), [drafted.step]
    elif prd is not None:
        plan, done = read_plan(prd), []
    for note in plan.notes:
        notify(note)
    return anyio.run(_start, plan, done, workspace, effective, settings, json)


def _approve_stories(drafted: "Draft", *, is_approved: bool) -> "Plan":
    """Print the planner's stories and return them once the user approves them."""
    for story in drafted.plan.ordered():
        notify(f"{story.id}  {story.title}")
        for criterion in story.criteria:
            notify(f"    - {criterion}")
    notify(f"the stories were saved to {drafted.file}")
    if not is_approved and not _ask_for_approval():
        step = f"copy {str(drafted.file)!r}, edit the copy, and pass it with --prd"
        raise UsageError(f"no loop was started; {step}")
    return drafted.plan


def _ask_for_approval() -> bool:
    try:
        return input("Accept these stories? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


async def _start(
    plan: "Plan",
    done: "list[StepRow]",
    workspace: Path,
    effective: "Effective",
    settings: "LoopSettings",
    json: bool,
) -> int:
    from ringfence.loop.credentials import with_second_writer
    from ringfence.loop.start import begin

    settings = await with_second_writer(effective, settings, workspace, notify)
    starting = begin(plan, workspace, effective=effective, settings=settings, notify=notify, done=done)
    return await _run_to_end(starting, effective, settings, json=json)


async def _run_to_end(
    beginning: "AbstractAsyncContextManager[StartedLoop]",
    effective: "Effective",
    settings: "LoopSettings",
    *,
    json: bool,
    is_resumed: bool = False,
) -> int:
    """Run a loop on this terminal and return its exit code."""
    import anyio

    from ringfence.cli.loop.view import LoopView
    from ringfence.cli.run.execution import handle_interrupts
    from ringfence.integrations.attestation.loop_attestation import attest_proposal
    from ringfence.loop.runs import Runs
    from ringfence.loop.state import EXIT_CODES
    from ringfence.loop.worker import work

    runs = Runs(notify=notify, is_checked=True)

    def interrupt() -> None:
        notify(
            "stopping immediately"
            if runs.is_stopping
            else "stopping; accepted stories are kept. Press Ctrl-C again to stop immediately."
        )
        runs.stop()

    async with beginning as started, anyio.create_task_group() as tasks:
        view = LoopView(started.directory, json=json)
        view.attach(started.store, is_resumed=is_resumed)
        await tasks.start(handle_interrupts, interrupt)
        done = await work(
            started,
            effective=effective,
            settings=settings,
            runs=runs,
            notify=notify,
            attest=attest_proposal,
            is_resumed=is_resumed,
        )
        tasks.cancel_scope.cancel()
    await view.finish(repository=started.repository, problem=done.problem)
    if done.problem is not None:
        raise done.problem
    if not done.row.state.publishes_passed and (settings.merge or settings.pr):
        notify("the loop is not over: nothing was merged, and no pull request was opened")
    return int(EXIT_CODES[done.row.state])


def resume_loop(
    loop_ref: str | None, limits: Mapping[str, Any], flags: "Sequence[Flag]", *, json: bool
) -> int:
    """Resume a loop, with new limits or models if they are given, and return its exit code."""
    import anyio

    return anyio.run(_resume, loop_ref, limits, flags, json)


async def _resume(
    loop_ref: str | None, limits: Mapping[str, Any], flags: "Sequence[Flag]", json: bool
) -> int:
    from ringfence.loop.completion import is_delivered
    from ringfence.loop.journal import open_with_record
    from ringfence.loop.repository import LoopRepository
    from ringfence.loop.start import reopen
    from ringfence.loop.state import EXIT_CODES, LoopState
    from ringfence.loop.store import read_overview, read_store

    directory = await _my_loop(loop_ref)
    row, _ = read_overview(directory)
    if not directory.repository_dir.is_dir():
        LoopRepository.open(directory.repository_dir)  # raises: without its repository no loop is resumed
    has_nothing_left = row.state.is_settled and not _outstanding_steps(directory, row)
    if has_nothing_left and await is_delivered(
        LoopRepository.open(directory.repository_dir), read_store(directory)
    ):
        with open_with_record(directory):
            pass  # seals the record, if the process that ended the loop died before
        if row.state is LoopState.SUCCEEDED:
            notify(f"loop {directory.id} has ended: {row.reason}; nothing is left to do")
            return int(EXIT_CODES[row.state])
        raise UsageError(
            f"loop {directory.id} has ended: {row.reason}; `ringfence loop retry STORY` restarts a story, `ringfence "
            "loop accept STORY` accepts its last attempt"
        )
    effective, settings = await _check_resumable(directory, limits, flags)
    return await _run_to_end(reopen(directory, settings), effective, settings, json=json, is_resumed=True)


async def _check_resumable(
    directory: "LoopDirectory", limits: Mapping[str, Any], flags: "Sequence[Flag]"
) -> "tuple[Effective, LoopSettings]":
    """Check that a loop can be resumed, before anything of it is changed. Return the configuration for it.

    Raises:
        RepositoryRemoved: The loop's repository was removed.
        RingfenceError: The configuration, a role or a credential is wrong.
    """
    from ringfence.loop.configuration import restore_configuration, with_others
    from ringfence.loop.credentials import check_credentials, check_roles
    from ringfence.loop.repository import LoopRepository
    from ringfence.loop.settings import LoopLimits
    from ringfence.loop.store import read_overview

    if not directory.repository_dir.is_dir():
        LoopRepository.open(directory.repository_dir)  # raises: without its repository no loop is resumed
    row, _ = read_overview(directory)
    effective, settings = restore_configuration(row.configuration, loop=directory.id)
    if limits:
        try:
            changed = LoopLimits.model_validate({**settings.limits.model_dump(), **limits})
        except ValueError as exc:
            raise UsageError(f"a limit is not valid: {exc}") from exc
        settings = settings.model_copy(update={"limits": changed})
    effective, settings = with_others(effective, settings, flags)
    await check_roles(effective, settings, Path(row.source))
    await check_credentials(effective, settings, Path(row.source), notify)
    return effective, settings


async def _my_loop(loop_ref: str | None) -> "LoopDirectory":
    from ringfence.loop.selection import select_loop

    return await select_loop(loop_ref, Path.cwd())


def _outstanding_steps(directory: "LoopDirectory", row: "LoopRow") -> tuple[str, ...]:
    """The steps after the last story (merge, pull request) that are not done."""
    from ringfence.loop.report.build import outstanding, settings_of
    from ringfence.loop.store import read_events

    return outstanding(directory, row, settings_of(row), read_events(directory, 0))


def retry_story(loop_ref: str | None, story: str, answer: str | None, *, json: bool) -> int:
    """Restart a story, resume its loop and return the loop's exit code."""

    async def decide(directory: "LoopDirectory") -> str | None:
        from ringfence.loop.decision import retry

        return await retry(directory, story, answer)

    return _decide(loop_ref, decide, json=json)


def accept_story(loop_ref: str | None, story: str, attempt: int | None, *, json: bool) -> int:
    """Accept an attempt at a story, resume its loop and return the loop's exit code."""

    async def decide(directory: "LoopDirectory") -> str:
        from ringfence.loop.decision import accept

        return await accept(directory, story, attempt)

    return _decide(loop_ref, decide, json=json)


def reject_story(loop_ref: str | None, story: str, reason: str | None, *, json: bool) -> int:
    """Take a story back from the loop's branch, resume the loop and return the loop's exit code."""

    async def decide(directory: "LoopDirectory") -> str:
        from ringfence.loop.decision import reject

        return await reject(directory, story, reason)

    return _decide(loop_ref, decide, json=json)


def _decide(
    loop_ref: str | None, decide: "Callable[[LoopDirectory], Awaitable[str | None]]", *, json: bool
) -> int:
    """Check that the loop can be resumed, carry a decision out, print its line and resume the loop."""
    import anyio

    from ringfence.loop.start import reopen

    async def check_and_decide() -> int:
        directory = await _my_loop(loop_ref)
        effective, settings = await _check_resumable(directory, {}, ())
        line = await decide(directory)
        if line is not None:
            notify(line)
        return await _run_to_end(reopen(directory, settings), effective, settings, json=json, is_resumed=True)

    return anyio.run(check_and_decide)


def cancel_loop(loop_ref: str | None) -> None:
    """Cancel a loop; if no process runs it, end it here."""
    import anyio

    async def cancel() -> None:
        from ringfence.loop.cancellation import cancel as cancel_it
        from ringfence.loop.start import start_lock

        if loop_ref is not None:
            return notify(await cancel_it(await _my_loop(loop_ref), notify, is_named=True))
        async with start_lock(
            Path.cwd()
        ):  # waits for a loop that is starting here, which is the one to cancel
            directory = await _my_loop(loop_ref)
        return notify(await cancel_it(directory, notify, is_named=False))

    anyio.run(cancel)


def clean_loops(loop_ref: str | None, *, everything: bool, is_forced: bool) -> int:
    """Remove a loop's files on this machine, or those of all closed loops of a repository; return the exit code.

    Args:
        loop_ref: The id of a loop or its end. None: the newest loop of this repository, or with `everything` all of its
            loops that succeeded, are incomplete or were cancelled.
        everything: Whether to remove the reports and the database rows, too.
        is_forced: Whether to remove work that cannot be delivered.
    """
    import anyio

    if loop_ref is not None or not everything:
        _clean_loop(anyio.run(_my_loop, loop_ref), everything=everything, is_forced=is_forced)
        return 0
    from ringfence.loop.selection import closed_loops

    found, code = anyio.run(closed_loops, Path.cwd()), 0
    if not found:
        notify(
            "nothing was removed: no loop of this repository has ended; to remove one that can be resumed, name it"
        )
    for directory in found:
        try:
            _clean_loop(directory, everything=True, is_forced=is_forced)
        except RingfenceError as exc:  # the others are removed
            notify(str(exc))
            code = code or int(exc.exit_code)
    return code


def _clean_loop(directory: "LoopDirectory", *, everything: bool, is_forced: bool) -> None:
    """Remove the files of one loop, and print what was removed and where its work is."""
    import anyio

    from ringfence.loop.report.diff import PATCH
    from ringfence.loop.repository import LoopRepository
    from ringfence.removal import remove_tree
    from ringfence.sandbox.pool.pool import drain_pool

    where = "" if directory.is_worked_on else anyio.run(_deliver_before_removal, directory, is_forced)
    outstanding = _describe_outstanding(directory)
    with directory.held():
        anyio.run(drain_pool, directory.repository_dir)
        has_files = directory.repository_dir.is_dir()
        if has_files:
            anyio.run(LoopRepository.open(directory.repository_dir).clean)
        if everything:
            remove_tree(directory.path)
    patch = directory.path / PATCH
    kept = f"; {str(patch)!r} has all that passed" if patch.is_file() else ""
    if everything:
        notify(f"removed loop {directory.id} with its report{where}")
    elif has_files:
        notify(f"removed the working files of loop {directory.id}{where}{kept}")
    else:
        notify(f"the working files of loop {directory.id} were removed earlier{where}{kept}")
    if outstanding:
        notify(f"not done, although it was requested: {outstanding}")


async def _deliver_before_removal(directory: "LoopDirectory", is_forced: bool) -> str:
    from ringfence.loop.cancellation import deliver_before_removal
    from ringfence.loop.store import read_overview

    try:
        read_overview(directory)
    except RingfenceError:
        return ""  # its rows are damaged or missing; it can still be removed
    return await deliver_before_removal(directory, notify, is_forced=is_forced)


def _describe_outstanding(directory: "LoopDirectory") -> str:
    """Name the steps after the last story that cannot be done any more without the loop's repository."""
    from ringfence.loop.store import read_overview

    try:
        return " and ".join(_outstanding_steps(directory, read_overview(directory)[0]))
    except RingfenceError:  # its rows cannot be read; it can still be removed
        return ""


def check_loop(prd: Path, workspace: Path, effective: "Effective", flags: "list[Flag]", *, json: bool) -> int:
    """Print every problem on stderr and the inputs of a loop on stdout; return the exit code."""
    import anyio
    import typer

    from ringfence.loop.preflight import preflight

    found = anyio.run(preflight, prd, workspace, effective, flags)
    print_answer(_document(found), _lines(found), json=json)
    if json:
        return found.exit_code
    for problem in found.problems:
        notify(problem.message)
    typer.echo(f"{counted(len(found.problems), 'problem')}" if found.problems else "no problems found")
    return found.exit_code


def _document(found: "Preflight") -> dict[str, Any]:
    plan, inspection = found.plan, found.inspection
    stories = [] if plan is None else plan.ordered()
    return {
        "is_ready": not found.problems,
        "problems": [{"message": each.message, "exit_code": int(each.exit_code)} for each in found.problems],
        "notes": found.notes,
        "dialect": None if plan is None else plan.dialect,
        "stories": [
            {"id": each.id, "title": each.title, "is_done": each.is_done, "depends_on": [*each.depends_on]}
            for each in stories
        ],
        "repository": None if inspection is None else str(inspection.source.root),
        "base": None if inspection is None else inspection.base,
        "checks": [
            {
                "kind": each.kind,
                "name": each.name,
                "command": each.command,
                "timeout_s": each.timeout_s,
                "runner": each.runner,
            }
            for each in found.checks
        ],
        "protected": [*found.protected],
        "not_checked": found.missing_checks,
        "limits": None if found.limits is None else found.limits.model_dump(mode="json"),
    }


def _lines(found: "Preflight") -> "Iterator[str]":
    if found.plan is not None:
        stories = found.plan.ordered()
        done = sum(story.is_done for story in stories)
        yield f"stories: {len(stories)}, {done} of them already done"
        for story in stories:
            yield f"  {'x' if story.is_done else '-'} {story.id}  {story.title}"
    if found.inspection is not None:
        yield f"repository: {found.inspection.source.root} at {found.inspection.base[:12]}"
    if found.checks:
        yield "checks:"
        yield from (f"  {check.kind}  {check.command}  ({_proof(check)})" for check in found.checks)
    if found.protected:
        yield "protected from changes of an attempt, which are left out:"
        yield from (f"  {line}" for line in found.protected)
    if found.limits is not None:
        yield f"budget: {_budget(found)}"
    yield from (f"note: {line}" for line in (*found.missing_checks, *found.notes))


def _proof(check: "Check") -> str:
    """What a check of this kind proves."""
    if check.runner is not None:
        return f"by the tests that {check.runner} reports: each must have run and passed"
    if check.kind == "test":
        return "by its exit code; by each test as well if it starts pytest"
    return "by its exit code"


def _budget(found: "Preflight") -> str:
    from ringfence.config.units import format_duration

    limits = found.limits
    assert limits is not None
    money = "" if limits.cost_usd is None else f", ${limits.cost_usd:g}"
    return f"{limits.agent_calls:,} agent calls, {limits.tokens:,} tokens{money}, {format_duration(limits.wall_clock)}"
