"""Options that several commands share, and the way from them to a configuration and a spec."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.sandbox import SandboxSpec

WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", "-C", metavar="DIR", help="Directory to work on; default: this one.")
]
BackendOption = Annotated[
    str | None, typer.Option("--sandbox", metavar="NAME", help="auto, bubblewrap, or host (no fence at all).")
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
SoftOption = Annotated[
    bool | None,
    typer.Option("--soft-limits", help="Accept a watchdog where the kernel cannot enforce a limit."),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Variable inside. Never a secret."),
]
SetupOption = Annotated[
    list[str] | None,
    typer.Option("--setup", metavar="CMD", help="Shell command run inside first; repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def load_settings(
    workspace: Path,
    *,
    backend: str | None = None,
    mode: str | None = None,
    memory: str | None = None,
    cpus: float | None = None,
    pids: int | None = None,
    disk: str | None = None,
    soft_limits: bool | None = None,
    env: Sequence[str] | None = None,
    setup: Sequence[str] | None = None,
    more: Sequence[tuple[str, str, Any]] = (),
) -> "Effective":
    """The effective configuration: these options over environment, files and defaults.

    `more` holds further (key, option, value).

    Raises:
        ConfigurationError, UsageError: As `ringfence.config.load`.
    """
    from ringfence.config import Flag, load

    check_directory(workspace)
    said = [
        ("sandbox.backend", "--sandbox", backend),
        ("sandbox.mode", "--mode", mode),
        ("sandbox.memory", "--memory", memory),
        ("sandbox.cpus", "--cpus", cpus),
        ("sandbox.pids", "--pids", pids),
        ("sandbox.disk", "--disk", disk),
        ("sandbox.soft_limits", "--soft-limits", soft_limits or None),
        ("sandbox.env", "--env", _environment(env) if env else None),
        ("sandbox.setup", "--setup", list(setup) if setup else None),
        *more,
    ]
    return load(workspace.absolute(), flags=[Flag(key, name, value) for key, name, value in said])


def check_directory(workspace: Path) -> None:
    """See that a workspace is there and can be entered.

    Raises:
        UsageError: It is not.
    """
    try:
        if not stat.S_ISDIR(workspace.stat().st_mode):
            raise UsageError(f"workspace {str(workspace)!r} is not a directory; name one with --workspace")
        workspace.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise UsageError(
            f"workspace {str(workspace)!r} cannot be used: {reason}; name a directory with --workspace"
        ) from exc


def spec_of(effective: "Effective", workspace: Path | None) -> "SandboxSpec":
    """The sandbox that the configuration asks for.

    Raises:
        ConfigurationError, UsageError: It asks for what no backend of this version has.
    """
    from ringfence.sandbox.registry import backend_names

    backend = effective.settings.sandbox.backend
    if backend not in ("auto", *backend_names()):
        known = ", ".join(("auto", *backend_names()))
        raise effective.origins["sandbox.backend"].error(
            f"unknown sandbox backend {backend!r}; known: {known}"
        )
    image = effective.settings.sandbox.image
    if image is not None:
        raise ConfigurationError(
            f"sandbox.image {image!r} ({effective.origins['sandbox.image']}) needs a container backend, which this "
            "version does not have; leave it out"
        )
    return spec_from(effective.settings, workspace)


def spec_from(settings: "Settings", workspace: Path | None) -> "SandboxSpec":
    """The sandbox that settings ask for. Raises as `spec_of`."""
    from ringfence.sandbox import Mount, SandboxSpec

    arguments = settings.sandbox.spec_arguments()
    arguments.pop("protect", None)  # of the workspace, not of the sandbox: `RunRequest.protect`
    arguments.pop("image", None)
    arguments["mounts"] = tuple(Mount(**mount) for mount in arguments.get("mounts", ()))
    return SandboxSpec(workspace=workspace, **arguments)


def secrets_of(settings: "Settings") -> tuple[str, ...]:
    """Values that no record may hold: the caller's own, and those given to the sandbox against all advice."""
    import os

    from ringfence.secret import environment_secrets

    return environment_secrets({**os.environ, **settings.sandbox.env})


def warn_about(effective: "Effective") -> None:
    """Print what is weaker than the default, on stderr."""
    for what, by in effective.loosenings():
        typer.echo(f"ringfence: WARNING: {what} (by {by})", err=True)


def _environment(items: Sequence[str]) -> dict[str, str]:
    for item in items:
        if "=" not in item:
            raise UsageError(f"--env {item!r} has no '='; write NAME=VALUE")
    return dict(item.split("=", 1) for item in items)
