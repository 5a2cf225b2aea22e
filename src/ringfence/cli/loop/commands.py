"""`ringfence loop`: turns stories into a verified branch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ringfence.cli import options
from ringfence.cli.options import JsonOption, setting_option, takes_settings
from ringfence.cli.settings import check_file, load_settings, warn_about
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Flag

LoopArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="LOOP",
        show_default=False,
        help="Id of a loop, or the last characters of it; default: the newest of this repository.",
    ),
]
StoryArgument = Annotated[str, typer.Argument(metavar="STORY", help="Id of a story.")]
LoopOption = Annotated[
    str | None,
    typer.Option(
        "--loop",
        metavar="LOOP",
        help="Id of a loop, or the last characters of it; default: the newest of this repository.",
    ),
]
RoleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="ROLE=RUNTIME:MODEL",
        help="Runtime and model of a role, like judge=claude-cli:MODEL; repeatable.",
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option("--base", metavar="COMMIT", help="Commit to start from; default: the one checked out."),
]
GoalOption = Annotated[
    str | None,
    typer.Option(
        "--goal", metavar="TEXT", help="Goal from which a planner drafts the stories, instead of --prd."
    ),
]
BaselineOption = Annotated[
    Literal["record", "refuse"] | None,
    typer.Option("--baseline", help="If tests fail at the start: count only new failures, or refuse."),
]
AttemptsOption = Annotated[
    int | None,
    typer.Option("--attempts", metavar="N", help="Attempts at a story's code before it is skipped."),
]
ParallelOption = Annotated[
    int | None, typer.Option("--parallel", metavar="N", help="Number of stories to work on in parallel.")
]
ReviewOption = Annotated[
    bool | None, typer.Option("--review/--no-review", help="Have a reviewer answer before the judge.")
]
MaxAgentCallsOption = Annotated[
    int | None, typer.Option("--max-agent-calls", metavar="N", help="Limit on agent calls, of all roles.")
]
MaxTokensOption = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", help="Limit for the whole loop.")
]
MaxCostOption = Annotated[
    float | None, typer.Option("--max-cost-usd", metavar="USD", help="Limit for the whole loop.")
]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Time limit for the whole loop, like 8h.")
]
JsonEventsOption = Annotated[bool, typer.Option("--json", help="Print events as NDJSON.")]
MergeOption = Annotated[
    bool, typer.Option("--merge", help="When the loop ends: fast-forward the branch checked out.")
]
PrOption = Annotated[
    bool, typer.Option("--pr", help="Push the branch and open a pull request with your `gh`.")
]
PrdArgument = Annotated[
    Path | None, typer.Argument(metavar="PRD", show_default=False, help="File with the stories.")
]
PrdOption = Annotated[
    Path | None, typer.Option("--prd", metavar="FILE", help="File with the stories; the same as PRD.")
]


@takes_settings(
    "sandbox", "image", "engine", "model", "runtime", "memory", "cpus", "pids", "disk", "soft_limits",
    "setup", "allow", "env", "auth",
)  # fmt: skip
def start(
    file: PrdArgument = None,
    *,
    prd: PrdOption = None,
    goal: GoalOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept the planner's stories without asking.")] = False,
    workspace: options.WorkspaceOption = Path(),
    base: BaseOption = None,
    baseline: BaselineOption = None,
    attempts: AttemptsOption = None,
    parallel: ParallelOption = None,
    role: RoleOption = None,
    review: ReviewOption = None,
    max_agent_calls: MaxAgentCallsOption = None,
    max_tokens: MaxTokensOption = None,
    max_cost_usd: MaxCostOption = None,
    timeout: TimeoutOption = None,
    merge: MergeOption = False,
    pr: PrOption = False,
    json: JsonEventsOption = False,
    **settings: Any,
) -> None:
    """Start a loop that works through stories test-first."""
    from ringfence.cli.loop.start import start_loop

    prd = _chosen_prd(file, prd)
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
    raise typer.Exit(start_loop(prd, goal, workspace, effective, flags, is_approved=yes, json=json))


def _chosen_prd(argument: Path | None, option: Path | None) -> Path | None:
    """The file with the stories, by the argument or the option.

    Raises:
        UsageError: Both are given, or it cannot be read.
    """
    if argument is not None and option is not None:
        raise UsageError(
            f"PRD {str(argument)!r} and --prd {str(option)!r} both name the stories; give one of them"
        )
    if option is not None:
        return check_file(option, "--prd")
    return None if argument is None else check_file(argument)


def _flags(values: dict[str, tuple[str, object]], roles: "list[str] | tuple[str, ...]") -> "list[Flag]":
    from ringfence.config import Flag

    flags = [Flag(key, name, value) for key, (name, value) in values.items()]
    for item in roles:
        role, equals, program = item.partition("=")
        if not equals or not program:
            raise UsageError(
                f"--role {item!r} has no '='; write ROLE=RUNTIME:MODEL, ROLE=RUNTIME or ROLE=:MODEL"
            )
        runtime, _, model = program.partition(":")
        if runtime == "scripted":
            runtime, model = "", program
        flags.append(Flag(f"roles.{role}.runtime", "--role", runtime or None))
        flags.append(Flag(f"roles.{role}.model", "--role", model or None))
    return flags


def resume(
    loop: LoopArgument = None,
    *,
    max_agent_calls: Annotated[
        int | None, typer.Option("--max-agent-calls", metavar="N", help="New limit on agent calls.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="New limit.")] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option("--max-cost-usd", metavar="USD", help="New limit.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="New time limit, from now.")
    ] = None,
    model: Annotated[str | None, setting_option("model")] = None,
    role: RoleOption = None,
    json: JsonEventsOption = False,
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
        str | None, typer.Option("--answer", metavar="TEXT", help="Answer the question of a blocked story.")
    ] = None,
    json: JsonEventsOption = False,
) -> None:
    """Retry a skipped or blocked story and resume the loop."""
    from ringfence.cli.loop.start import retry_story

    raise typer.Exit(retry_story(loop, story, answer, json=json))


def accept(
    story: StoryArgument,
    *,
    loop: LoopOption = None,
    attempt: Annotated[
        int | None,
        typer.Option(
            "--attempt", metavar="N", help="Accept this attempt, as `loop diff --rejected N` shows it."
        ),
    ] = None,
    json: JsonEventsOption = False,
) -> None:
    """Accept a rejected attempt at a story and resume the loop.

    Without --attempt the last one is accepted. Look at it first: `ringfence loop diff STORY --rejected N`.
    """
    from ringfence.cli.loop.start import accept_story

    raise typer.Exit(accept_story(loop, story, attempt, json=json))


def reject(
    story: StoryArgument,
    *,
    loop: LoopOption = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Why; the agents of a later retry read it, too."),
    ] = None,
    json: JsonEventsOption = False,
) -> None:
    """Reject a story that passed and resume the loop.

    A commit on the loop's branch takes its changes back. Look at them first: `ringfence loop show --story STORY`.
    """
    from ringfence.cli.loop.start import reject_story

    raise typer.Exit(reject_story(loop, story, reason, json=json))


@takes_settings("sandbox", "model", "runtime")
def check(
    file: PrdArgument = None,
    *,
    prd: PrdOption = None,
    workspace: options.WorkspaceOption = Path(),
    base: BaseOption = None,
    role: RoleOption = None,
    max_cost_usd: MaxCostOption = None,
    merge: MergeOption = False,
    pr: PrOption = False,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Check stories, repository and roles before starting.

    It tests what `loop start` tests before an agent runs, credentials included, and ends with the same exit code.
    """
    from ringfence.cli.loop.start import check_loop

    prd = _chosen_prd(file, prd)
    if prd is None:
        raise UsageError("no stories are given; name their file: `ringfence loop check PRD`")
    effective = load_settings(workspace, **settings)
    values: dict[str, tuple[str, object]] = {
        "base": ("--base", base),
        "limits.cost_usd": ("--max-cost-usd", max_cost_usd),
        "merge": ("--merge", merge or None),
        "pr": ("--pr", pr or None),
    }
    raise typer.Exit(check_loop(prd, workspace, effective, _flags(values, role or ()), json=json))


def ls(*, json: JsonOption = False) -> None:
    """List loops, the newest first."""
    from ringfence.cli.loop.inspection import list_loops

    list_loops(json=json)


def status(loop: LoopArgument = None, *, json: JsonOption = False) -> None:
    """Show the state of a loop's stories and what they used."""
    from ringfence.cli.loop.inspection import show_status

    show_status(loop, json=json)


def show(
    loop: LoopArgument = None,
    *,
    story: Annotated[
        str | None,
        typer.Option("--story", metavar="STORY", help="Show only this story, with the lines it changed."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as an HTML page instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a loop's report: evidence, changes, cost and time."""
    from ringfence.cli.loop.inspection import show_report

    show_report(loop, story=story, html=html, json=json)


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
        str | None,
        typer.Argument(metavar="STORY", show_default=False, help="Print only this story's changes."),
    ] = None,
    *,
    loop: LoopOption = None,
    rejected: Annotated[
        int | None, typer.Option("--rejected", metavar="N", help="Print attempt N, which was rejected.")
    ] = None,
) -> None:
    """Print the changes of a loop or of one story as a patch."""
    from ringfence.cli.loop.inspection import print_diff

    print_diff(loop, story, rejected=rejected)


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; never the loop's own source.")],
    *,
    loop: LoopOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is no such export.")] = False,
) -> None:
    """Export the stories with their progress to a file.

    An earlier export of the same stories is replaced.
    """
    from ringfence.cli.loop.inspection import export_plan

    export_plan(loop, file, force=force)


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
        bool, typer.Option("--all", help="Also remove the report and database rows; run records stay.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it although its work cannot be delivered.")
    ] = False,
) -> None:
    """Remove a loop's working files; its branch stays.

    Work that is not in your repository yet is delivered first. With --all and without LOOP, it removes all loops of the
    repository that succeeded, are incomplete or were cancelled.
    """
    from ringfence.cli.loop.start import clean_loops

    raise typer.Exit(clean_loops(loop, everything=everything, is_forced=force))
