"""Options and arguments that commands take, each declared once, and the settings they stand for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

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

SandboxOption = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="NAME", help="auto, bubblewrap, docker, podman, gvisor, or host (no fence)."
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

SETTINGS: Mapping[str, str] = {
    "sandbox": "sandbox.backend",
    "image": "sandbox.image",
    "engine": "sandbox.engine",
    "mode": "sandbox.mode",
    "memory": "sandbox.memory",
    "cpus": "sandbox.cpus",
    "pids": "sandbox.pids",
    "disk": "sandbox.disk",
    "soft_limits": "sandbox.soft_limits",
    "setup": "sandbox.setup",
    "forward": "sandbox.forward",
    "allow": "egress.allow",
    "env": "sandbox.env",
    "auth": "auth",
    "ttl": "sandbox.ttl",
    "timeout": "limits.wall_clock",
    "model": "run.model",
    "toolset": "run.toolset",
    "verify": "run.verify",
    "require_verified": "run.require_verified",
    "max_turns": "limits.turns",
    "max_tool_calls": "limits.tool_calls",
    "max_tokens": "limits.tokens",
    "max_cost_usd": "limits.cost_usd",
}
"""The key in the configuration that each of these options sets; the option is the name with dashes."""
