"""`ringfence exec`: one command in a fence."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options
from ringfence.cli.settings import (
    check_image,
    load_settings,
    pool_of,
    secrets_of,
    spec_of,
    wait_of,
    warn_about,
)
from ringfence.errors import PolicyRefused

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.events import Event
    from ringfence.job.request import Purpose, RunRequest


def execute(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Program and arguments.")],
    *,
    workspace: options.WorkspaceOption = Path(),
    sandbox: options.SandboxOption = None,
    image: options.ImageOption = None,
    engine: options.EngineOption = None,
    mode: options.ModeOption = None,
    memory: options.MemoryOption = None,
    cpus: options.CpusOption = None,
    pids: options.PidsOption = None,
    disk: options.DiskOption = None,
    timeout: options.TimeoutOption = None,
    wait: options.WaitOption = "0",
    max_tokens: options.MaxTokensOption = None,
    max_cost_usd: options.MaxCostOption = None,
    soft_limits: options.SoftLimitsOption = None,
    setup: options.SetupOption = None,
    forward: options.ForwardOption = None,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
    auth: options.AuthOption = None,
) -> None:
    """Run one command in a sandbox. Its output and exit code are passed through, stdin too. Journaled."""
    effective = load_settings(
        workspace, sandbox=sandbox, image=image, engine=engine, mode=mode, memory=memory, cpus=cpus, pids=pids,
        disk=disk, timeout=timeout, max_tokens=max_tokens, max_cost_usd=max_cost_usd, soft_limits=soft_limits,
        setup=setup, forward=forward, allow=allow, env=env, auth=auth,
    )  # fmt: skip
    warn_about(effective)
    request = command_request(tuple(command), workspace, effective, purpose="exec", wait_s=wait_of(wait))
    import anyio

    raise typer.Exit(anyio.run(_execute, request, tuple(command), effective))


def command_request(
    command: tuple[str, ...],
    workspace: Path,
    effective: "Effective",
    *,
    purpose: "Purpose",
    wait_s: float = 0.0,
) -> "RunRequest":
    """A run whose inside is `command`; what it is lent comes later.

    Raises:
        PolicyRefused: Credentials were to be put into a standing sandbox, or swapped for it.
        ConfigurationError, UsageError: As `spec_of` and `check_image`.
    """
    import shlex

    from ringfence.job.request import RunRequest

    if purpose == "standing" and effective.settings.auth == "inject":
        raise PolicyRefused(
            "auth: inject is for single runs: a standing sandbox would hold your credentials for as long as it stands",
            rule="auth-inject-standing",
        )
    if purpose == "standing" and effective.settings.egress.swap:
        raise PolicyRefused(
            "egress.swap is for single runs: a standing sandbox has no lease of such secrets; take it out",
            rule="egress-swap-standing",
        )
    place = workspace.resolve()
    settings = effective.settings
    spec = spec_of(effective, place)
    check_image(spec)
    return RunRequest(
        prompt=shlex.join(command),
        workspace=place,
        spec=spec,
        purpose=purpose,
        wait_s=wait_s,
        wall_clock_s=settings.limits.wall_clock if purpose == "exec" else None,
        loosenings=effective.loosenings(),
        secrets=secrets_of(settings),
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        pool=None if purpose == "standing" else pool_of(settings),
        runtime=purpose,
    )


@asynccontextmanager
async def lent(request: "RunRequest", effective: "Effective") -> "AsyncIterator[RunRequest]":
    """A command's run with the secrets it is lent.

    Raises:
        AuthenticationFailed, InfrastructureFault, PolicyRefused: As `lent_to_run`.
        ConfigurationError: The model's script cannot be read.
    """
    from dataclasses import replace

    from ringfence.cli.agent import access_of
    from ringfence.cli.lending import lent_to_run
    from ringfence.model.registry import needs_credential

    settings = effective.settings
    is_asked = request.spec.egress.wants_model and needs_credential(settings.run.model)
    async with lent_to_run(effective, request.workspace, others=is_asked) as found:
        yield replace(
            request,
            leases=found.leases,
            injected=found.injected,
            model_access=access_of(settings, request.spec, found),
        )


async def standing_request(name: str, workspace: Path, effective: "Effective") -> "RunRequest":
    """A standing sandbox. Its holder, which outlives us, is lent what it needs by itself.

    Raises:
        AuthenticationFailed: Models may be asked inside, and there is no credential.
        ConfigurationError, PolicyRefused, UsageError: As `command_request` and `lent`.
    """
    from dataclasses import replace

    from ringfence.cli.agent import access_of
    from ringfence.cli.lending import Lent, one_each, refuse_in, revoke_the_dead
    from ringfence.model.registry import needs_credential
    from ringfence.secret import known_secrets

    settings = effective.settings
    request = command_request((name,), workspace, effective, purpose="standing")
    is_asked = request.spec.egress.wants_model and needs_credential(settings.run.model)
    wanted = one_each(known_secrets(settings.secrets)) if is_asked else []
    for secret in wanted:
        refuse_in(request.workspace, secret)
    await revoke_the_dead()
    return replace(request, wanted=wanted, model_access=access_of(settings, request.spec, Lent()))


async def _execute(request: "RunRequest", command: tuple[str, ...], effective: "Effective") -> int:
    async with lent(request, effective) as complete:
        return await _passed_through(complete, command)


async def _passed_through(request: "RunRequest", command: tuple[str, ...]) -> int:
    from contextlib import ExitStack
    from functools import partial

    from ringfence.cli.escape import visible
    from ringfence.cli.flagged import warnings
    from ringfence.cli.outward import Refused
    from ringfence.cli.private_copy import how_to_apply
    from ringfence.cli.running import run_to_end
    from ringfence.cli.unconnected import HINT, Unconnected
    from ringfence.job.command import Stdio, open_null, run_command

    refused, unconnected = Refused(), Unconnected()

    async def view(event: "Event") -> None:
        unconnected.note(event)
        await refused.show(event)

    with ExitStack() as files:
        stdio = Stdio(
            sys.stdin.buffer if sys.stdin else None,
            sys.stdout.buffer if sys.stdout else files.enter_context(open_null()),
            sys.stderr.buffer if sys.stderr else files.enter_context(open_null()),
        )
        result = await run_to_end(request, partial(run_command, command, stdio), view=view)
    told = refused.lines()
    if unconnected.is_likely and not request.spec.egress.wants_proxy:
        told.append(HINT)
    for line in told:
        typer.echo(f"ringfence: {visible(line, one_line=True)}", err=True)
    for line in warnings(result.work.runs_on_your_machine, result.run_id) if result.work else ():
        typer.echo(f"ringfence: {visible(line, one_line=True)}", err=True)
    hint = how_to_apply(result.work, result.run_dir)
    if hint is not None:
        typer.echo(f"ringfence: {hint}", err=True)
    if result.command_exit_code is None or result.state.value not in ("succeeded", "failed"):
        typer.echo(f"ringfence: {result.state.value}: {visible(result.reason, one_line=True)}", err=True)
    return result.exit_code if result.command_exit_code is None else result.command_exit_code
