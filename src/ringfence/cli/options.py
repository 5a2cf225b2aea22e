"""Declares the options and arguments that commands share, and the options that set configuration keys."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from ringfence.cli import completion
from ringfence.frozen import frozen

PASS_ARGUMENTS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a command whose arguments are another command with its own options."""
_Command = TypeVar("_Command", bound=Callable[..., None])


def with_options(**options: Any) -> Callable[[_Command], _Command]:
    """Set the arguments of Typer's `command` for a command, such as its class or context settings."""

    def declare(command: _Command) -> _Command:
        command.command_options = options  # type: ignore[attr-defined]  # read by the tree of commands
        return command

    return declare


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        autocompletion=completion.complete_runs,
        help="A run's id, the beginning of it or of its last eight digits; `last`: the newest here with a sandbox.",
    ),
]
WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        "-C",
        metavar="DIR",
        show_default=False,
        help="Directory to work on; default: this one.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="With `last`: the newest run on any workspace.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most N.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the end.")]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Use the fleet at this address; RINGFENCE_TOKEN is for it."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
LogFormatOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log-format", help="Format of the log; default: `fleet.log_format`."),
]

WaitOption = Annotated[
    str,
    typer.Option("--wait", metavar="TIME", help="Wait this long for another run on the workspace to end."),
]


@frozen
class SettingOption:
    """A command-line option that sets a configuration key; its flag is the name in `SETTINGS`, with dashes."""

    key: str
    """The key in the configuration."""
    kind: Any
    metavar: str
    """Name of the value in the help; empty for a switch."""
    help_text: str
    short: str = ""
    value: str | None = None
    """Value to set, if the option is a switch whose key is not a boolean."""
    complete: Callable[[], list[str]] | None = None
    """Lists the values that a shell offers."""


SETTINGS: Mapping[str, SettingOption] = {
    "sandbox": SettingOption(
        "sandbox.backend",
        str,
        "NAME",
        "Backend: auto, bubblewrap, docker, podman, gvisor, kubernetes, or host (no sandbox).",
        complete=completion.complete_backends,
    ),
    "image": SettingOption("sandbox.image", str, "IMAGE", "Container image, with a tag or digest."),
    "engine": SettingOption(
        "sandbox.engine", str, "ADDRESS", "Container engine: unix://, tcp://, ssh://, or a context."
    ),
    "mode": SettingOption(
        "sandbox.mode",
        str,
        "MODE",
        "How the workspace is shown: bind, read_only, clone.",
        complete=completion.complete_key("sandbox.mode"),
    ),
    "memory": SettingOption("sandbox.memory", str, "SIZE", "Memory limit, like 512m."),
    "cpus": SettingOption("sandbox.cpus", float, "N", "Processor limit, like 1.5."),
    "pids": SettingOption("sandbox.pids", int, "N", "Process limit."),
    "disk": SettingOption("sandbox.disk", str, "SIZE", "Limit on the growth of the workspace (watched)."),
    "soft_limits": SettingOption(
        "sandbox.soft_limits", bool, "", "Accept a watchdog where the kernel cannot enforce a limit."
    ),
    "setup": SettingOption(
        "sandbox.setup", list[str], "CMD", "Shell command to run inside first; repeatable."
    ),
    "forward": SettingOption(
        "sandbox.forward",
        list[str],
        "HOST:PORT",
        "Forward a TCP service to 127.0.0.1 inside, also as NAME:PORT=HOST:PORT; repeatable.",
    ),
    "allow": SettingOption(
        "egress.allow",
        list[str],
        "WHAT",
        "Allow packages, model, open, or a host like *.example.com:8443; repeatable.",
        complete=completion.complete_presets,
    ),
    "env": SettingOption(
        "sandbox.env",
        list[str],
        "NAME=VALUE",
        "Environment variable inside; never a secret. Repeatable.",
        short="-e",
    ),
    "label": SettingOption(
        "labels", list[str], "KEY=VALUE", "Label of the run, for `ringfence runs ls --label`; repeatable."
    ),
    "auth": SettingOption(
        "auth",
        str,
        "HOW",
        "keyless, or inject to put models' credentials inside (weaker).",
        complete=completion.complete_key("auth"),
    ),
    "ttl": SettingOption("sandbox.ttl", str, "TIME", "Stop the sandbox after this time in any case."),
    "timeout": SettingOption("limits.wall_clock", str, "TIME", "Wall clock limit, like 30m."),
    "model": SettingOption("run.model", str, "MODEL", "Name of the model, or scripted:FILE.", short="-m"),
    "runtime": SettingOption(
        "run.runtime",
        str,
        "NAME",
        "Agent: api (built in), claude, claude-sdk or codex.",
        complete=completion.complete_runtimes,
    ),
    "toolset": SettingOption(
        "run.toolset",
        str,
        "NAME",
        "Tools: coder, or operator (one shell tool).",
        complete=completion.complete_key("run.toolset"),
    ),
    "system_prompt": SettingOption(
        "run.system_prompt", str, "TEXT", "Text that replaces the agent's system prompt."
    ),
    "system_append": SettingOption(
        "run.system_append", str, "TEXT", "Text added to the end of the system prompt."
    ),
    "allow_tool": SettingOption(
        "tools.allow", list[str], "TOOL", "Allow only this tool of the agent; repeatable."
    ),
    "deny_tool": SettingOption("tools.deny", list[str], "TOOL", "Deny this tool of the agent; repeatable."),
    "permit_tool": SettingOption(
        "tools.permit", list[str], "TOOL", "Permit this tool besides the allowed ones; repeatable."
    ),
    "ask": SettingOption(
        "ask.about",
        list[str],
        "KIND",
        "Ask about a refused host, tool, budget, or question.",
        complete=completion.complete_key("ask.about"),
    ),
    "permission_mode": SettingOption(
        "client.permission_mode",
        str,
        "MODE",
        "Permission mode of an agent CLI: bypass, accept_edits, plan, or deny.",
        complete=completion.complete_key("client.permission_mode"),
    ),
    "output_schema": SettingOption(
        "run.output_schema", Path, "FILE", "JSON Schema of the agent CLI's answer."
    ),
    "idle_timeout": SettingOption(
        "client.idle_timeout", str, "TIME", "End an agent CLI that is silent for this long."
    ),
    "cli_path": SettingOption(
        "client.path", Path, "FILE", "Program of the agent CLI; default: found on PATH."
    ),
    "cli_arg": SettingOption(
        "client.args", list[str], "ARG", "Further argument of the agent CLI; repeatable."
    ),
    "plugin": SettingOption(
        "client.plugins", list[Path], "DIR", "Plugin of the agent CLI, mounted read-only; repeatable."
    ),
    "settings_source": SettingOption(
        "client.settings_sources",
        list[str],
        "WHICH",
        "Apply the agent CLI's own settings: user, project, local; repeatable. Default: none.",
        complete=completion.complete_key("client.settings_sources"),
    ),
    "force": SettingOption("client.force", bool, "", "Accept an agent CLI outside of the tested versions."),
    "verify": SettingOption("run.verify", str, "CMD", "Command that checks the work in a new sandbox."),
    "no_verify": SettingOption(
        "run.verify", bool, "", "Run no check, and exit with 0 instead of 9.", value="none"
    ),
    "require_verified": SettingOption(
        "run.require_verified", bool, "", "Refuse a run without a check; `unverified` exits with 3."
    ),
    "max_turns": SettingOption("limits.turns", int, "N", "Limit on replies of the model."),
    "max_tool_calls": SettingOption("limits.tool_calls", int, "N", "Limit on tool calls."),
    "max_tokens": SettingOption("limits.tokens", int, "N", "Limit on tokens."),
    "max_cost_usd": SettingOption("limits.cost_usd", float, "USD", "Limit on the cost."),
}


def setting_option(name: str) -> Any:
    """Build the Typer option of a setting, for a parameter's annotation."""
    option = SETTINGS[name]
    flags = [f"--{name.replace('_', '-')}", *([option.short] if option.short else [])]
    return typer.Option(
        *flags, metavar=option.metavar or None, help=option.help_text, autocompletion=option.complete
    )


def takes_settings(*names: str) -> Callable[[_Command], _Command]:
    """Add setting options to a command, which receives their values in `**settings`; None means not given."""

    def declare(command: _Command) -> _Command:
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[SETTINGS[name].kind | None, setting_option(name)],
            )
            for name in names
        ]
        # Typer reads a command's options from its signature.
        command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return command

    return declare


SignWithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sign-with",
        metavar="SIGNER",
        help="ssh:KEYFILE, command:PROGRAM ARGUMENTS, or journal (the default); repeatable.",
    ),
]
AnchorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor",
        metavar="ANCHOR",
        help="Where its digest is kept: git:REMOTE[#REF], or tsa:URL of a time-stamp server; repeatable.",
    ),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tsa-certificate", metavar="FILE", help="Authorities of time-stamp servers, in PEM format."
    ),
]
