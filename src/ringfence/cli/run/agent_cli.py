"""`ringfence claude` and `ringfence codex`: the agent CLIs on this terminal, in a sandbox."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ringfence.cli import options
from ringfence.cli.options import takes_settings, with_options
from ringfence.cli.output import notify
from ringfence.cli.settings import load_settings, wait_of, warn_about
from ringfence.errors import UsageError
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.cli.render.egress import RefusalSummary
    from ringfence.config import Effective
    from ringfence.job.outcome import RunResult
    from ringfence.runtime.agent_cli.base import AgentCli
    from ringfence.runtime.transcript.translator import CliName
    from ringfence.sandbox import Sandbox

_HELP = """\
Work with {title} in a sandbox on this terminal.

The sandbox holds no API key. Afterwards `ringfence diff` shows the changes. `ringfence undo` reverts them; from a
private copy (mode clone; the default on root's own workspace) `ringfence apply` must bring them in first.

Ringfence's options come first. {name} receives all arguments after --, or from the first other argument on:
`ringfence {name} --memory 4g {example}`. Its own help: `ringfence {name} -- --help`.
"""
_EXAMPLES = {"claude": "--continue", "codex": "resume --last"}
_SHARED = {"claude": {"--model", "--env"}, "codex": {"--model", "--sandbox", "--image", "--env"}}
"""Options that both Ringfence and the agent CLI have."""
_USAGE_EXIT_CODES = (1, 2)
"""Exit codes of an agent CLI that rejects its arguments."""


class AgentCliCommand(TyperCommand):
    """A command whose own options end where the arguments of the agent CLI begin."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse Ringfence's options, and pass the other arguments unchanged."""
        count = _count_own_arguments(self.get_params(ctx), args)
        rest = args[count:]
        return super().parse_args(ctx, [*args[:count], "--", *(rest[1:] if rest[:1] == ["--"] else rest)])


def _count_own_arguments(parameters: list[Any], args: list[str]) -> int:
    takes_value = {
        name: not getattr(each, "is_flag", False)
        for each in parameters
        if each.param_type_name == "option"
        for name in (*each.opts, *each.secondary_opts)
    }
    position = 0
    while position < len(args):
        word = args[position]
        name, equals, _ = word.partition("=")
        if name in takes_value and (equals or word in takes_value):
            position += 2 if takes_value[name] and not equals else 1
        elif word[:2] in takes_value and not word.startswith("--"):
            position += 1  # -C/some/where
        else:
            break
    return min(position, len(args))


def misplaced(parameters: list[Any], name: str, args: Sequence[str]) -> list[str]:
    """Ringfence's options among the arguments of an agent CLI, each once, except those that the CLI has itself."""
    ours = {spelling for each in parameters if each.param_type_name == "option" for spelling in each.opts}
    own = args[: args.index("--")] if "--" in args else args
    words = dict.fromkeys(word.partition("=")[0] for word in own if word.startswith("--"))
    return [word for word in words if word in ours - _SHARED[name] - {"--help"}]


def misplaced_option_lines(name: str, words: Sequence[str], exit_code: int | None) -> list[str]:
    """Explain misplaced options after the agent CLI has rejected its arguments."""
    if not words or exit_code not in _USAGE_EXIT_CODES:
        return []
    are = f"{words[0]} is an option" if len(words) == 1 else f"{', '.join(words)} are options"
    return [f"{are} of ringfence and must come first: ringfence {name} {words[0]} ..."]


def agent_cli_command(name: "CliName", title: str) -> Callable[..., None]:
    """Create the command of an agent CLI."""

    @takes_settings(
        "sandbox", "image", "engine", "mode", "model", "memory", "cpus", "pids", "disk", "timeout",
        "max_tokens", "max_cost_usd", "soft_limits", "setup", "forward", "allow", "env", "auth", "cli_path",
        "settings_source", "force",
    )  # fmt: skip
    def command(
        ctx: typer.Context,
        args: Annotated[
            list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the agent CLI.")
        ] = None,
        *,
        workspace: options.WorkspaceOption = Path(),
        wait: options.WaitOption = "0",
        **settings: Any,
    ) -> None:
        effective = load_settings(workspace, **settings)
        model = settings["model"]
        model_arguments = [] if model is None or model.startswith("scripted:") else ["--model", model]
        misplaced_options = tuple(misplaced(ctx.command.params, name, args or ()))
        _run(
            _TerminalRequest(
                name,
                (*model_arguments, *(args or ())),
                workspace,
                effective,
                wait_of(wait),
                misplaced_options,
            )
        )

    command.__doc__ = _HELP.format(title=title, name=name, example=_EXAMPLES[name])
    return with_options(cls=AgentCliCommand)(command)


@frozen
class _TerminalRequest:
    name: "CliName"
    args: tuple[str, ...]
    workspace: Path
    effective: "Effective"
    wait_s: float
    misplaced: tuple[str, ...]
    """Ringfence's options among the arguments of the agent CLI."""


def _run(request: _TerminalRequest) -> None:
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError(
            f"ringfence {request.name} needs a terminal; in scripts use `ringfence run --runtime {request.name}-cli`"
        )
    warn_about(request.effective)
    import anyio

    from ringfence.cli.render.console import open_console
    from ringfence.cli.render.egress import RefusalSummary
    from ringfence.cli.render.summary import how_to_undo, print_summary

    refused = RefusalSummary()
    result = anyio.run(_on_terminal, request, refused)
    for line in refused.lines():
        notify(line)
    print_summary(open_console(stderr=True), result)
    for line in misplaced_option_lines(request.name, request.misplaced, result.command_exit_code):
        notify(line)
    hint = how_to_undo(result.work, result.run_dir)
    if hint is not None:
        notify(hint)
    raise typer.Exit(result.exit_code if result.command_exit_code is None else result.command_exit_code)


async def _on_terminal(request: _TerminalRequest, refused: "RefusalSummary") -> "RunResult":
    from ringfence.cli.run.execution import run_to_end
    from ringfence.job.agent_cli import terminal_run

    opened = terminal_run(
        request.name,
        request.args,
        request.workspace,
        request.effective,
        notify=notify,
        on_start=_report_start,
    )
    async with opened as run_request:
        return await run_to_end(replace(run_request, wait_s=request.wait_s), view=refused.show)


def _report_start(agent_cli: "AgentCli", sandbox: "Sandbox", version: str) -> None:
    """Print where the work goes and what the sandbox may reach, before the agent CLI takes over the screen."""
    placement, facts = sandbox.placement, sandbox.facts
    is_copy = placement.workspace_source != placement.workspace
    where = f"{'a private copy of ' if is_copy else ''}{sandbox.spec.workspace}"
    where += ", read-only" if placement.workspace_read_only else ""
    allowed = [str(rule) for rule in sandbox.spec.egress.allow]
    reached = (
        "only the model, without its key"
        if allowed == ["model"]
        else f"{', '.join(allowed)}; it holds no key"
    )
    notify(f"{agent_cli.title} {version} on {where}")
    fence = f"inside the sandbox ({facts.backend})" if facts.is_fence else "WITHOUT a sandbox"
    notify(f"{fence} it can reach: {reached}")


claude = agent_cli_command("claude", "Claude Code")
codex = agent_cli_command("codex", "Codex")
