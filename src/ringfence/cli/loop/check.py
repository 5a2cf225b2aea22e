"""What `ringfence loop check` does, once its words are read."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.plural import counted
from ringfence.cli.printing import print_answer
from ringfence.cli.saying import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.config import Effective, Flag
    from ringfence.loop.preflight import Preflight


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
        say(problem.message)
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
