"""List loops, and print a loop's status, report, changes and stories, once the command line is parsed."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ringfence.cli.output import note, notify, print_answer, replace_file
from ringfence.errors import RingfenceError, UsageError

if TYPE_CHECKING:
    from ringfence.loop.directory import LoopDirectory
    from ringfence.loop.report import LoopReport
    from ringfence.loop.store import LoopStore
    from ringfence.loop.story import Plan, StoryEnd

_T = TypeVar("_T")


def list_loops(*, json: bool) -> None:
    """Print all loops, the newest first, and the error of each loop that cannot be read."""
    from ringfence.cli.render.console import print_list
    from ringfence.loop.directory import loop_directories
    from ringfence.loop.report.reader import summarize_loop
    from ringfence.loop.store import read_store

    rows, directories = [], loop_directories()
    if not directories and not json:
        note("no loops yet; `ringfence loop start PRD` starts one")
    for directory in directories:
        try:
            rows.append(summarize_loop(directory, read_store(directory)))
        except RingfenceError as exc:  # written by another version, or damaged; the other loops are listed
            notify(f"loop {directory.id}: {exc}")
    cells = [(row["id"], row["state"], f"{row['passed']}/{row['stories']}", row["source"]) for row in rows]
    print_list({"loops": rows}, ("loop", "state", "passed", "stories"), cells, json=json)


def show_status(loop_ref: str | None, *, json: bool) -> None:
    """Print the state of a loop and its stories."""
    import dataclasses

    from ringfence.cli.render.console import open_console, print_line
    from ringfence.loop.report.model import STAGES
    from ringfence.loop.report.text import next_steps, one_line, status_table, used_words
    from ringfence.loop.selection import root_of

    report = _read_report(loop_ref, with_changes=False)
    if json:
        stories = [
            {
                "id": story.id,
                "title": story.title,
                "state": story.state,
                "stage": story.stage,
                "reason": story.reason,
                "attempt": story.attempt,
                "tests_attempt": story.tests_attempt,
                "generation": story.generation,
                "stages": dict(zip(STAGES, story.stages, strict=True)),
                "used": dataclasses.asdict(story.used),
            }
            for story in report.stories
        ]
        head = {name: getattr(report, name) for name in ("id", "state", "reason", "source", "base", "branch")}
        used = {"used": dataclasses.asdict(report.used), "stories": stories}
        print_answer({**head, **used, "next": next_steps(report)}, (), json=True)
        return
    console = open_console()
    reason = f": {one_line(report.reason)}" if report.reason not in ("", report.state) else ""
    print_line(console, f"loop {report.id}  {report.state}{reason}", "bold")
    if root_of(Path(report.source)) != root_of(Path.cwd()):
        print_line(console, f"repository: {report.source}")
    for line in status_table(report):
        print_line(console, line)
    for story in report.stories:
        if story.reason:
            print_line(console, f"{story.id}: {one_line(story.reason)}")
    print_line(console, f"used: {used_words(report.used)}")
    for command in next_steps(report):
        print_line(console, f"next: {command}")


def show_report(loop_ref: str | None, *, story: str | None, html: Path | None, json: bool) -> None:
    """Print a loop's report or that of one story, or write it as an HTML page.

    Raises:
        UsageError: There is no such story, or the page cannot be written to that file.
    """
    import dataclasses

    import typer

    from ringfence.loop.report.html import render_html
    from ringfence.loop.report.markdown import render_markdown

    report = _read_report(loop_ref)
    if html is not None:
        replace_file(html, render_html(report, story=story))
    if json:
        shown = report if story is None else report.story(story)
        print_answer(dataclasses.asdict(shown), (), json=True)
    elif html is None:
        typer.echo(render_markdown(report, story=story), nl=False)


def print_diff(loop_ref: str | None, story: str | None, *, rejected: int | None) -> None:
    """Print a patch on stdout, byte for byte.

    Raises:
        UsageError: The story or attempt does not exist, or none of its changes are on the branch.
        RepositoryRemoved: The loop's repository was removed.
    """
    if rejected is not None and story is None:
        raise UsageError(f"--rejected {rejected} needs the STORY whose attempt it was")
    directory = _find_loop(loop_ref)

    async def find(directory: "LoopDirectory", store: "LoopStore") -> bytes:
        from ringfence.loop.report.diff import loop_patch, rejected_patch, story_patch

        if story is None:
            return await loop_patch(directory, store)
        if rejected is None:
            return await story_patch(directory, store, story)
        return await rejected_patch(store, story, rejected)

    sys.stdout.buffer.write(_read_store(directory, find))
    sys.stdout.buffer.flush()


def export_plan(loop_ref: str | None, file: Path, *, force: bool) -> None:
    """Write a copy of the stories with their progress.

    Raises:
        UsageError: The file is the loop's own source, or, without `force`, exists and is not an export of these stories.
        InfrastructureFault: It cannot be written.
    """
    from ringfence.loop.story import export

    async def read(_directory: "LoopDirectory", store: "LoopStore") -> "tuple[Plan, dict[str, StoryEnd]]":
        from ringfence.loop.plans import ends_of, plan_from_json

        return plan_from_json(store.loop.plan), ends_of(store.stories)

    plan, ends = _read_store(_find_loop(loop_ref), read)
    if not force and file.is_file() and not _has_stories_of(plan, file):
        raise UsageError(
            f"{str(file)!r} exists already and is no export of these stories; overwrite it with --force, or name "
            "another file"
        )
    export(plan, file, ends)
    notify(f"the stories with their progress are in {str(file.absolute())!r}")


def _has_stories_of(plan: "Plan", file: Path) -> bool:
    from ringfence.loop.story import read_plan

    try:
        there = read_plan(file)
    except RingfenceError:
        return False
    return [(story.id, story.title) for story in there.stories] == [
        (each.id, each.title) for each in plan.stories
    ]


def _find_loop(loop_ref: str | None) -> "LoopDirectory":
    import anyio

    from ringfence.loop.selection import select_loop

    async def find() -> "LoopDirectory":
        return await select_loop(loop_ref, Path.cwd())

    return anyio.run(find)


def _read_report(loop_ref: str | None, *, with_changes: bool = True) -> "LoopReport":
    import anyio

    from ringfence.loop.report.reader import read_report

    directory = _find_loop(loop_ref)

    async def read() -> "LoopReport":
        return await read_report(directory, with_changes=with_changes)

    return anyio.run(read)


def _read_store(
    directory: "LoopDirectory", read: "Callable[[LoopDirectory, LoopStore], Awaitable[_T]]"
) -> _T:
    """Run `read` on the rows of a loop."""
    import anyio

    from ringfence.loop.store import read_store

    return anyio.run(read, directory, read_store(directory))
