"""`ringfence loop`: stories in, a verified branch out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ringfence.cli import options
from ringfence.cli.options import JsonOption, setting_option, takes_settings
from ringfence.cli.settings import load_settings, warn_about
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Flag

LoopArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="LOOP", show_default=False, help="Its id, or the end of it; default: the last one here."
    ),
]
StoryArgument = Annotated[str, typer.Argument(metavar="STORY", help="Its id.")]
LoopOption = Annotated[
    str | None,
    typer.Option("--loop", metavar="LOOP", help="Its id, or the end of it; default: the last one here."),
]
RoleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="ROLE=RUNTIME:MODEL",
        help="Who plays a role, as judge=claude-cli:MODEL; repeatable.",
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option("--base", metavar="COMMIT", help="Where to begin; default: what is checked out."),
]
MaxCostOption = Annotated[
    float | None, typer.Option("--max-cost-usd", metavar="USD", help="Of the whole loop.")
]
PrdArgument = Annotated[Path, typer.Argument(metavar="PRD", help="The file with the stories.")]


@takes_settings(
    "sandbox", "image", "engine", "model", "runtime", "memory", "cpus", "pids", "disk", "soft_limits",
    "setup", "allow", "env", "auth",
)  # fmt: skip
def start(
    *,
    prd: Annotated[Path | None, typer.Option("--prd", metavar="FILE", help="The stories.")] = None,
    goal: Annotated[
        str | None,
        typer.Option("--goal", metavar="TEXT", help="Instead: what is wanted; the planner drafts stories."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take the planner's stories without asking.")] = False,
    workspace: options.WorkspaceOption = Path(),
    base: BaseOption = None,
    baseline: Annotated[
        Literal["record", "refuse"] | None,
        typer.Option(
            "--baseline", help="If tests fail before anything is done: count new failures only, or refuse."
        ),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", metavar="N", help="At a story's code, before it is skipped.")
    ] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", metavar="N", help="Stories at once.")] = None,
    role: RoleOption = None,
    review: Annotated[
        bool | None, typer.Option("--review/--no-review", help="Whether a reviewer answers before the judge.")
    ] = None,
    max_agent_calls: Annotated[
        int | None, typer.Option("--max-agent-calls", metavar="N", help="Runs of agents, of all roles.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Of the whole loop.")
    ] = None,
    max_cost_usd: MaxCostOption = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Of the whole loop, like 8h.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Fast-forward the branch it began at, if everything passed.")
    ] = False,
    pr: Annotated[
        bool, typer.Option("--pr", help="Push the branch and open a pull request with your `gh`.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what happens as NDJSON.")] = False,
    **settings: Any,
) -> None:
    """Start a loop that works through stories test-first."""
    from ringfence.cli.loop.start import start_loop

    effective = load_settings(workspace, **settings)
    warn_about(effective)
    flags = _flags(
        {
            "base": ("--base", base),
            "baseline": ("--baseline", baseline),
            "attempts": ("--attempts", attempts),
            "parallel": ("--parallel", parallel),
            "review": ("--review", review),
            "merge": ("--merge", merge or None),
            "pr": ("--pr", pr or None),
            "limits.agent_calls": ("--max-agent-calls", max_agent_calls),
            "limits.tokens": ("--max-tokens", max_tokens),
            "limits.cost_usd": ("--max-cost-usd", max_cost_usd),
            "limits.wall_clock": ("--timeout", timeout),
        },
        role or (),
    )
    raise typer.Exit(start_loop(prd, goal, workspace, effective, flags, is_agreed=yes, json=json))


def _flags(said: dict[str, tuple[str, object]], roles: "list[str] | tuple[str, ...]") -> "list[Flag]":
    from ringfence.config import Flag

    flags = [Flag(key, name, value) for key, (name, value) in said.items()]
    for item in roles:
        role, equals, who = item.partition("=")
        if not equals or not who:
            raise UsageError(
                f"--role {item!r} has no '='; write ROLE=RUNTIME:MODEL, ROLE=RUNTIME or ROLE=:MODEL"
            )
        runtime, _, model = who.partition(":")
        if runtime == "scripted":
            runtime, model = "", who
        flags.append(Flag(f"roles.{role}.runtime", "--role", runtime or None))
        flags.append(Flag(f"roles.{role}.model", "--role", model or None))
    return flags


def resume(
    loop: LoopArgument = None,
    *,
    max_agent_calls: Annotated[
        int | None, typer.Option("--max-agent-calls", metavar="N", help="Another bound than before.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Another bound.")
    ] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option("--max-cost-usd", metavar="USD", help="Another bound.")
    ] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="From now.")] = None,
    model: Annotated[str | None, setting_option("model")] = None,
    role: RoleOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print what happens as NDJSON.")] = False,
) -> None:
    """Resume a loop that stopped before its stories were done."""
    from ringfence.cli.loop.start import resume_loop
    from ringfence.config import Flag

    limits = {
        "agent_calls": max_agent_calls,
        "tokens": max_tokens,
        "cost_usd": max_cost_usd,
        "wall_clock": timeout,
    }
    raise typer.Exit(
        resume_loop(
            loop,
            {key: value for key, value in limits.items() if value is not None},
            [Flag("model", "--model", model), *_flags({}, role or ())],
            json=json,
        )
    )


def retry(
    story: StoryArgument,
    *,
    loop: LoopOption = None,
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="TEXT", help="What a blocked story asked for.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what happens as NDJSON.")] = False,
) -> None:
    """Retry a skipped or blocked story and resume the loop."""
    from ringfence.cli.loop.start import retry_story

    raise typer.Exit(retry_story(loop, story, answer, json=json))


@takes_settings("sandbox", "model", "runtime")
def check(
    prd: PrdArgument,
    *,
    workspace: options.WorkspaceOption = Path(),
    base: BaseOption = None,
    role: RoleOption = None,
    max_cost_usd: MaxCostOption = None,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Check stories, repository and roles before starting."""
    from ringfence.cli.loop.start import check_loop

    effective = load_settings(workspace, **settings)
    said: dict[str, tuple[str, object]] = {
        "base": ("--base", base),
        "limits.cost_usd": ("--max-cost-usd", max_cost_usd),
    }
    raise typer.Exit(check_loop(prd, workspace, effective, _flags(said, role or ()), json=json))


def ls(*, json: JsonOption = False) -> None:
    """List loops, the newest first."""
    from ringfence.cli.loop.look import list_loops

    list_loops(json=json)


def status(loop: LoopArgument = None, *, json: JsonOption = False) -> None:
    """Show the state of a loop's stories and what they used."""
    from ringfence.cli.loop.look import show_status

    show_status(loop, json=json)


def show(
    loop: LoopArgument = None,
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a loop's report: evidence, changes, cost and time."""
    from ringfence.cli.loop.look import show_report

    show_report(loop, html=html, json=json)


def logs(
    loop: LoopArgument = None, *, follow: options.FollowOption = False, json: JsonOption = False
) -> None:
    """Print the events of a loop.

    With --follow the exit code is the loop's.
    """
    from ringfence.cli.loop.view import print_loop

    raise typer.Exit(print_loop(loop, follow=follow, json=json))


def diff(
    story: Annotated[
        str | None, typer.Argument(metavar="STORY", show_default=False, help="Only this one's.")
    ] = None,
    *,
    loop: LoopOption = None,
    rejected: Annotated[
        int | None, typer.Option("--rejected", metavar="N", help="Of its attempt N, which was rejected.")
    ] = None,
) -> None:
    """Print the changes of a loop or of one story as a patch."""
    from ringfence.cli.loop.look import print_diff

    print_diff(loop, story, rejected=rejected)


def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write; never the loop's own source.")
    ],
    *,
    loop: LoopOption = None,
) -> None:
    """Export the stories with their progress to a file."""
    from ringfence.cli.loop.look import export_plan

    export_plan(loop, file)


def cancel(loop: LoopArgument = None) -> None:
    """Cancel a loop; accepted stories stay.

    `ringfence loop resume` continues it.
    """
    from ringfence.cli.loop.start import cancel_loop

    cancel_loop(loop)


def rm(
    loop: LoopArgument = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Its report and its rows, too; not the records of its runs.")
    ] = False,
) -> None:
    """Remove a loop's working files; its branch stays."""
    from ringfence.cli.loop.start import clean_loop

    clean_loop(loop, everything=everything)
