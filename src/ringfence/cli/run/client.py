"""`ringfence claude` and `ringfence codex`: the real programs on this terminal, in a fence."""

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
    from ringfence.cli.render.egress import Refused
    from ringfence.config import Effective
    from ringfence.job.outcome import RunResult
    from ringfence.runtime.agent_cli.base import AgentCli
    from ringfence.runtime.transcript.translator import CliName
    from ringfence.sandbox import Sandbox

_HELP = """\
Work with {title} in a sandbox on this terminal.

No key is inside. Afterwards `ringfence diff` shows what changed, and `ringfence undo` takes it back.

Ringfence's options come first; from the first word that is none of them, or after --, everything is {name}'s own:
`ringfence {name} --memory 4g {example}`. Its own help: `ringfence {name} -- --help`.
"""
_EXAMPLES = {"claude": "--continue", "codex": "resume --last"}
_SHARED = {"claude": {"--model", "--env"}, "codex": {"--model", "--sandbox", "--image", "--env"}}
"""Options of ours that the client has, too."""
_WRONG_WORDS = (1, 2)
"""Exit codes of a client that does not take its arguments."""


class ClientCommand(TyperCommand):
    """A command whose own options end where the client's arguments begin."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take what is ours; the rest is left as it is."""
        ours = _length_of_ours(self.get_params(ctx), args)
        rest = args[ours:]
        return super().parse_args(ctx, [*args[:ours], "--", *(rest[1:] if rest[:1] == ["--"] else rest)])


def _length_of_ours(parameters: list[Any], args: list[str]) -> int:
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
    """Options of ours among the client's arguments, each once; those that it has itself are not meant."""
    ours = {spelling for each in parameters if each.param_type_name == "option" for spelling in each.opts}
    own = args[: args.index("--")] if "--" in args else args
    words = dict.fromkeys(word.partition("=")[0] for word in own if word.startswith("--"))
    return [word for word in words if word in ours - _SHARED[name] - {"--help"}]


def misplaced_option_lines(name: str, words: Sequence[str], exit_code: int | None) -> list[str]:
    """What to say of such options after the client has ended: they may be why it took no argument."""
    if not words or exit_code not in _WRONG_WORDS:
        return []
    are = f"{words[0]} is an option" if len(words) == 1 else f"{', '.join(words)} are options"
    return [f"{are} of ringfence's, which come first: ringfence {name} {words[0]} ..."]


def client_command(name: "CliName", title: str) -> Callable[..., None]:
    """The command of a client."""

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
        named = [] if model is None or model.startswith("scripted:") else ["--model", model]
        theirs = tuple(misplaced(ctx.command.params, name, args or ()))
        _run(_TerminalRequest(name, (*named, *(args or ())), workspace, effective, wait_of(wait), theirs))

    command.__doc__ = _HELP.format(title=title, name=name, example=_EXAMPLES[name])
    return with_options(cls=ClientCommand)(command)


@frozen
class _TerminalRequest:
    name: "CliName"
    args: tuple[str, ...]
    workspace: Path
    effective: "Effective"
    wait_s: float
    misplaced: tuple[str, ...]
    """Options of ours that came too late to be."""


def _run(asked: _TerminalRequest) -> None:
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError(
            f"ringfence {asked.name} needs a terminal; in scripts use `ringfence run --runtime {asked.name}-cli`"
        )
    warn_about(asked.effective)
    import anyio

    from ringfence.cli.render.console import open_console
    from ringfence.cli.render.egress import Refused
    from ringfence.cli.render.summary import how_to_undo, print_summary

    refused = Refused()
    result = anyio.run(_on_terminal, asked, refused)
    for line in refused.lines():
        notify(line)
    print_summary(open_console(stderr=True), result)
    for line in misplaced_option_lines(asked.name, asked.misplaced, result.command_exit_code):
        notify(line)
    hint = how_to_undo(result.work, result.run_dir)
    if hint is not None:
        notify(hint)
    raise typer.Exit(result.exit_code if result.command_exit_code is None else result.command_exit_code)


async def _on_terminal(asked: _TerminalRequest, refused: "Refused") -> "RunResult":
    from ringfence.cli.run.execution import run_to_end
    from ringfence.job.agent_cli import terminal_run

    opened = terminal_run(
        asked.name, asked.args, asked.workspace, asked.effective, notify=notify, on_start=_report_start
    )
    async with opened as request:
        return await run_to_end(replace(request, wait_s=asked.wait_s), view=refused.show)


def _report_start(client: "AgentCli", sandbox: "Sandbox", version: str) -> None:
    """Where the work goes, and what may be reached: before the screen is the client's."""
    placement, facts = sandbox.placement, sandbox.facts
    is_copy = placement.workspace_source != placement.workspace
    where = f"{'a private copy of ' if is_copy else ''}{sandbox.spec.workspace}"
    where += ", read-only" if placement.workspace_read_only else ""
    allowed = [str(rule) for rule in sandbox.spec.egress.allow]
    reached = (
        "the model alone, without a key"
        if allowed == ["model"]
        else f"{', '.join(allowed)}; no key is inside"
    )
    notify(f"{client.title} {version} on {where}")
    fence = f"in the fence ({facts.backend})" if facts.is_fence else "with NO fence"
    notify(f"{fence} it reaches: {reached}")


claude = client_command("claude", "Claude Code")
codex = client_command("codex", "Codex")
