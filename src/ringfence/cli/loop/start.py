"""What `ringfence loop start`, `resume`, `retry`, `cancel` and `clean` do, once their words are read."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.output import counted, notify, print_answer
from ringfence.errors import RingfenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.config import Effective, Flag
    from ringfence.loop.drafting import Draft
    from ringfence.loop.place import LoopPlace
    from ringfence.loop.preflight import Preflight
    from ringfence.loop.settings import LoopSettings
    from ringfence.loop.starting import Begun
    from ringfence.loop.store.rows import LoopRow, StepRow
    from ringfence.loop.story import Plan


def start_loop(
    prd: Path | None,
    goal: str | None,
    workspace: Path,
    effective: "Effective",
    flags: "list[Flag]",
    *,
    is_agreed: bool,
    json: bool,
) -> int:
    """Begin a loop and work it to its end; its exit code.

    Raises:
        RingfenceError: It could not be begun.
    """
    import anyio

    from ringfence.loop.drafting import draft
    from ringfence.loop.loading import load_loop
    from ringfence.loop.pull_request import gh_program
    from ringfence.loop.story import read_plan

    if (prd is None) == (goal is None):
        raise UsageError("give the stories once: by --prd FILE, or as a --goal from which they are drafted")
    if goal is not None and not goal.strip():
        raise UsageError("--goal is empty; say what is wanted, or give stories by --prd FILE")
    settings = load_loop(effective, flags)
    if settings.pr:
        gh_program(workspace)
    if goal is not None:
        if not is_agreed and not sys.stdin.isatty():
            raise UsageError("the planner's stories need your word: add --yes, or run it on a terminal")
        anyio.run(_refuse_unfit, workspace.resolve(), effective, settings)  # before a planner is paid
        drafted = anyio.run(draft, goal, workspace, effective, settings, notify)
        plan, done = _agreed(drafted, is_agreed=is_agreed), [drafted.step]
    elif prd is not None:
        plan, done = read_plan(prd), []
    for note in plan.notes:
        notify(note)
    return anyio.run(_start, plan, done, workspace, effective, settings, json)


async def _refuse_unfit(source: Path, effective: "Effective", settings: "LoopSettings") -> None:
    """See that a loop can be begun on a repository, whatever its stories."""
    from ringfence.loop.credentials import check_players
    from ringfence.loop.repository import look
    from ringfence.loop.starting import refuse_second

    await refuse_second(source)
    await check_players(effective, settings, source)
    await look(source, base=settings.base)


def _agreed(drafted: "Draft", *, is_agreed: bool) -> "Plan":
    """The planner's stories, once the user has agreed to them."""
    for story in drafted.plan.ordered():
        notify(f"{story.id}  {story.title}")
        for criterion in story.criteria:
            notify(f"    - {criterion}")
    notify(f"these stories are kept in {drafted.file}")
    if not is_agreed and not _is_agreed():
        step = f"copy {str(drafted.file)!r}, mend it, and give it by --prd"
        raise UsageError(f"nothing was begun; {step}")
    return drafted.plan


def _is_agreed() -> bool:
    try:
        return input("Take these stories? [y/N] ").strip().lower() in ("y", "yes")
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
    from ringfence.loop.starting import begin

    settings = await with_second_writer(effective, settings, workspace, notify)
    begun = await begin(plan, workspace, effective=effective, settings=settings, tell=notify, done=done)
    return await _worked(begun, effective, settings, json=json)


async def _worked(
    begun: "Begun", effective: "Effective", settings: "LoopSettings", *, json: bool, goes_on: bool = False
) -> int:
    """Work a loop on this terminal."""
    import anyio

    from ringfence.cli.loop.view import LoopView
    from ringfence.cli.run.execution import on_interrupt
    from ringfence.loop.machine.turn import Runs
    from ringfence.loop.running import work
    from ringfence.loop.state import EXIT_CODES, LoopState

    view = LoopView(begun.place, json=json)
    if goes_on:
        await view.go_on()
    runs = Runs(tell=notify, is_checked=True)

    def interrupt() -> None:
        again = runs.is_stopping
        notify("stopping at once" if again else "stopping; what passed is kept, once more to stop at once")
        runs.stop()

    async with anyio.create_task_group() as tasks:
        await tasks.start(on_interrupt, interrupt)
        tasks.start_soon(view.follow)
        done = await work(
            begun.place,
            effective=effective,
            settings=settings,
            checks=begun.checks,
            runs=runs,
            tell=notify,
            is_resumed=goes_on,
        )
        tasks.cancel_scope.cancel()
    await view.finish(problem=done.problem)
    if done.problem is not None:
        raise done.problem
    if done.row.state is not LoopState.SUCCEEDED and (settings.merge or settings.pr):
        notify("not everything passed: nothing is merged or proposed")
    return int(EXIT_CODES[done.row.state])


def resume_loop(said: str | None, limits: Mapping[str, Any], who: "Sequence[Flag]", *, json: bool) -> int:
    """Go on with a loop, with other bounds or other models if they are said; its exit code."""
    import anyio

    return anyio.run(_resume, said, limits, who, json)


async def _resume(said: str | None, limits: Mapping[str, Any], who: "Sequence[Flag]", json: bool) -> int:
    from ringfence.loop.credentials import check_credentials, check_players
    from ringfence.loop.loading import brought_back, with_others
    from ringfence.loop.settings import LoopLimits
    from ringfence.loop.starting import Begun, checks_of
    from ringfence.loop.state import LoopState

    place = await _mine(said)
    row = await _row(place)
    if row.state in (LoopState.SUCCEEDED, LoopState.INCOMPLETE) and not await _left(place, row):
        raise UsageError(
            f"loop {place.id} has come to its end: {row.reason}; `ringfence loop retry STORY` begins one anew"
        )
    effective, settings = brought_back(row.configuration, loop=place.id)
    if limits:
        try:
            changed = LoopLimits.model_validate({**settings.limits.model_dump(), **limits})
        except ValueError as exc:
            raise UsageError(f"a bound does not fit: {exc}") from exc
        settings = settings.model_copy(update={"limits": changed})
    effective, settings = with_others(effective, settings, who)
    await check_players(effective, settings, Path(row.source))
    await check_credentials(effective, settings, Path(row.source), notify)
    begun = Begun(place, await checks_of(place, row, settings))
    return await _worked(begun, effective, settings, json=json, goes_on=True)


async def _mine(said: str | None) -> "LoopPlace":
    from ringfence.loop.choosing import choose_loop

    return await choose_loop(said, Path.cwd(), is_changed=True)


async def _row(place: Any) -> "LoopRow":
    from ringfence.loop.store.loops import LoopStore, open_database

    database = open_database(place.database_url)
    try:
        return await LoopStore(database, place.id).get()
    finally:
        database.close()


async def _left(place: "LoopPlace", row: "LoopRow") -> tuple[str, ...]:
    """What was asked for after the last story and is not done."""
    from ringfence.loop.report.gathering import settings_of
    from ringfence.loop.report.outstanding import outstanding
    from ringfence.loop.store.loops import LoopStore, open_database

    with closing(open_database(place.database_url)) as database:
        return outstanding(place, row, settings_of(row), await LoopStore(database, place.id).events())


def retry_story(said: str | None, story: str, answer: str | None, *, json: bool) -> int:
    """Begin a story anew, and go on with its loop; the exit code."""
    import anyio

    async def prepare() -> None:
        from ringfence.loop.retrying import begin_anew

        await begin_anew(await _mine(said), story, answer)

    anyio.run(prepare)
    return anyio.run(_resume, said, {}, (), json)


def cancel_loop(said: str | None) -> None:
    """Have a loop stop; one that nobody works on is ended here."""
    import anyio

    async def cancel() -> None:
        from ringfence.loop.cancelling import cancel as cancel_it
        from ringfence.loop.starting import one_at_a_time

        if said is not None:
            return notify(await cancel_it(await _mine(said), notify, is_named=True))
        async with one_at_a_time(Path.cwd()):  # the loop that is being started here is the one that is meant
            place = await _mine(said)
        return notify(await cancel_it(place, notify, is_named=False))

    anyio.run(cancel)


def clean_loop(said: str | None, *, everything: bool) -> None:
    """Remove what a loop has on this machine besides the user's repository."""
    import anyio

    from ringfence.loop.cancelling import drain_pool
    from ringfence.loop.repository import LoopRepository
    from ringfence.removal import remove_tree

    place = anyio.run(_mine, said)
    if not place.is_worked_on:
        anyio.run(_give_up, place)
    left = anyio.run(_still_asked_for, place)
    with place.held():
        anyio.run(drain_pool, place.clones)
        if place.clones.is_dir():
            anyio.run(LoopRepository.open(place.clones).clean)
        if everything:
            remove_tree(place.directory)
    if left:
        notify(f"{left} was asked for and is not done; the branch is in your repository")


async def _give_up(place: "LoopPlace") -> None:
    """End a loop that could be gone on with, so that nothing that passed is lost."""
    from ringfence.loop.cancelling import give_up

    try:
        await _row(place)
    except RingfenceError:
        return  # its rows are damaged or gone, and that keeps nobody from removing it
    await give_up(place, notify)


async def _still_asked_for(place: "LoopPlace") -> str:
    """What was asked for after the last story and cannot be done any more without the clones."""
    try:
        return " and ".join(await _left(place, await _row(place)))
    except RingfenceError:  # its rows cannot be read, and that keeps nobody from removing it
        return ""


def check_loop(prd: Path, workspace: Path, effective: "Effective", flags: "list[Flag]", *, json: bool) -> int:
    """Print all that is wrong, on stderr, and what a loop would work with; the exit code."""
    import anyio
    import typer

    from ringfence.loop.preflight import preflight

    found = anyio.run(preflight, prd, workspace, effective, flags)
    print_answer(_document(found), _lines(found), json=json)
    if json:
        return found.exit_code
    for problem in found.problems:
        notify(problem.message)
    typer.echo(
        f"{counted(len(found.problems), 'problem')}" if found.problems else "nothing stands against it"
    )
    return found.exit_code


def _document(found: "Preflight") -> dict[str, Any]:
    plan, look = found.plan, found.look
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
        "repository": None if look is None else str(look.source.root),
        "base": None if look is None else look.base,
        "checks": [
            {"kind": each.kind, "name": each.name, "command": each.command, "timeout_s": each.timeout_s}
            for each in found.checks
        ],
        "not_checked": found.lacking,
        "limits": None if found.limits is None else found.limits.model_dump(mode="json"),
    }


def _lines(found: "Preflight") -> "Iterator[str]":
    if found.plan is not None:
        stories = found.plan.ordered()
        done = sum(story.is_done for story in stories)
        yield f"stories: {len(stories)}, {done} of them done already"
        for story in stories:
            yield f"  {'x' if story.is_done else '-'} {story.id}  {story.title}"
    if found.look is not None:
        yield f"repository: {found.look.source.root} at {found.look.base[:12]}"
    if found.checks:
        yield "checks:"
        yield from (f"  {check.kind}  {check.command}" for check in found.checks)
    if found.limits is not None:
        yield f"budget: {_budget(found)}"
    yield from (f"note: {line}" for line in (*found.lacking, *found.notes))


def _budget(found: "Preflight") -> str:
    from ringfence.config.units import format_duration

    limits = found.limits
    assert limits is not None
    money = "" if limits.cost_usd is None else f", ${limits.cost_usd:g}"
    return f"{limits.agent_calls:,} agent calls, {limits.tokens:,} tokens{money}, {format_duration(limits.wall_clock)}"
