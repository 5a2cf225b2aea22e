"""Options and arguments that commands take, each declared once."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def command_group(name: str, help_text: str) -> typer.Typer:
    """A command with commands of its own; without one of them it prints its help."""
    return typer.Typer(name=name, help=help_text, no_args_is_help=True, rich_markup_mode=None)


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run id, the beginning of one or of its last eight digits, or 'last': the newest on this workspace.",
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
LogFormatOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log-format", help="How it says what happens; else `fleet.log_format`."),
]

SandboxOption = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="NAME", help="auto, bubblewrap, docker, podman, gvisor, sbx, or host (no fence)."
    ),
]
ImageOption = Annotated[
    str | None, typer.Option("--image", metavar="IMAGE", help="Container image, with a tag or digest.")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="ADDRESS", help="Container engine: unix://, tcp://, ssh://, or a context."
    ),
]
ModeOption = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="How the workspace is shown: bind, read_only, clone."),
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Memory limit, like 512m.")
]
CpusOption = Annotated[float | None, typer.Option("--cpus", metavar="N", help="Processor limit, like 1.5.")]
PidsOption = Annotated[int | None, typer.Option("--pids", metavar="N", help="Process limit.")]
DiskOption = Annotated[
    str | None, typer.Option("--disk", metavar="SIZE", help="Growth of the workspace (watched).")
]
SoftLimitsOption = Annotated[
    bool | None,
    typer.Option("--soft-limits", help="Accept a watchdog where the kernel cannot enforce a limit."),
]
SetupOption = Annotated[
    list[str] | None,
    typer.Option("--setup", metavar="CMD", help="Shell command run inside first; repeatable."),
]
ForwardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forward",
        metavar="HOST:PORT",
        help="TCP service reachable inside at 127.0.0.1, also as NAME:PORT=HOST:PORT; repeatable.",
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="WHAT",
        help="Reachable from inside: packages, model, open, or a host like *.example.com:8443; repeatable.",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Variable inside. Never a secret."),
]
WaitOption = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="Wait so long for another run to leave the workspace.")
]

TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Wall clock limit, like 30m.")
]

AuthOption = Annotated[
    str | None,
    typer.Option(
        "--auth", metavar="HOW", help="keyless, or inject: the models' credentials inside (a loosening)."
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="MODEL", help="Model, or scripted:FILE.")
]
ToolsetOption = Annotated[
    str | None, typer.Option("--toolset", metavar="NAME", help="coder, or operator (one shell tool).")
]
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="NAME",
        help="api (our own loop), or a client: claude-cli, claude-sdk, codex-cli.",
    ),
]
SystemPromptOption = Annotated[
    str | None,
    typer.Option("--system-prompt", metavar="TEXT", help="In place of the agent's own system prompt."),
]
SystemAppendOption = Annotated[
    str | None,
    typer.Option("--system-append", metavar="TEXT", help="Added to the end of the system prompt."),
]
AllowToolOption = Annotated[
    list[str] | None,
    typer.Option("--allow-tool", metavar="TOOL", help="Only this tool of the agent's own; repeatable."),
]
DenyToolOption = Annotated[
    list[str] | None, typer.Option("--deny-tool", metavar="TOOL", help="Not this tool; repeatable.")
]
PermissionModeOption = Annotated[
    str | None,
    typer.Option(
        "--permission-mode", metavar="MODE", help="Of a client: bypass, accept_edits, plan, or deny."
    ),
]
OutputSchemaOption = Annotated[
    Path | None, typer.Option("--output-schema", metavar="FILE", help="JSON Schema of a client's answer.")
]
IdleTimeoutOption = Annotated[
    str | None,
    typer.Option("--idle-timeout", metavar="TIME", help="End a client that is silent for so long."),
]
CliPathOption = Annotated[
    Path | None,
    typer.Option("--cli-path", metavar="FILE", help="The client's program; else it is looked for."),
]
CliArgOption = Annotated[
    list[str] | None,
    typer.Option("--cli-arg", metavar="ARG", help="Further argument of the client; repeatable."),
]
PluginOption = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="DIR", help="Plugin of the client, shown read-only; repeatable."),
]
SettingsSourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--settings-source",
        metavar="WHICH",
        help="The client's own settings count: user, project, local; repeatable. Default: none.",
    ),
]
ForceOption = Annotated[
    bool | None, typer.Option("--force", help="Try a client whose version is outside of the tested range.")
]
VerifyOption = Annotated[
    str | None,
    typer.Option("--verify", metavar="CMD", help="Check that decides the outcome, in a new sandbox."),
]
RequireVerifiedOption = Annotated[
    bool | None, typer.Option("--require-verified", help="Exit 3 unless a check has passed.")
]
MaxTurnsOption = Annotated[int | None, typer.Option("--max-turns", metavar="N", help="Replies of the model.")]
MaxToolCallsOption = Annotated[
    int | None, typer.Option("--max-tool-calls", metavar="N", help="Calls of tools.")
]
MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Tokens in all.")]
MaxCostOption = Annotated[float | None, typer.Option("--max-cost-usd", metavar="USD", help="Cost in all.")]
