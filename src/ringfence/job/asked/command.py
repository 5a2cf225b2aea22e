"""A run whose inside is a command, by the settings."""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import PolicyRefused
from ringfence.job.asked.lending import Lent, Tell, lent_to_run, one_each, refuse_in
from ringfence.job.asked.sandbox import check_image, pool_of, secrets_of, spec_of

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.job.request import Purpose, RunRequest


def command_request(
    command: tuple[str, ...],
    workspace: Path,
    effective: "Effective",
    *,
    purpose: "Purpose",
    wait_s: float = 0.0,
    continues: str | None = None,
) -> "RunRequest":
    """A run whose inside is `command`; what it is lent comes later.

    Args:
        command: Its words.
        workspace: Where it runs.
        effective: The settings.
        purpose: Of its sandbox.
        wait_s: How long it waits for a workspace that another run has, seconds.
        continues: A run whose work on a private copy it finds in its own copy.

    Raises:
        PolicyRefused: Credentials were to be put into a standing sandbox, or swapped for it.
        ConfigurationError, UsageError: As `spec_of` and `check_image`.
    """
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
        continues=continues,
    )


@asynccontextmanager
async def lent(request: "RunRequest", effective: "Effective", tell: Tell) -> "AsyncIterator[RunRequest]":
    """A command's run with the secrets it is lent.

    Raises:
        AuthenticationFailed, InfrastructureFault, PolicyRefused: As `lent_to_run`.
        ConfigurationError: The model's script cannot be read.
    """
    from ringfence.job.asked.agent import access_of
    from ringfence.model.registry import needs_credential

    settings = effective.settings
    is_asked = request.spec.egress.wants_model and needs_credential(settings.run.model)
    async with lent_to_run(effective, request.workspace, others=is_asked, tell=tell) as found:
        yield replace(
            request,
            leases=found.leases,
            injected=found.injected,
            model_access=access_of(settings, request.spec, found),
        )


async def standing_request(name: str, workspace: Path, effective: "Effective", tell: Tell) -> "RunRequest":
    """A standing sandbox. Its holder, which outlives us, is lent what it needs by itself.

    Raises:
        AuthenticationFailed: Models may be asked inside, and there is no credential.
        ConfigurationError, PolicyRefused, UsageError: As `command_request` and `lent`.
    """
    from ringfence.config.paths import state_dir
    from ringfence.job.asked.agent import access_of
    from ringfence.model.registry import needs_credential
    from ringfence.secret import known_secrets, revoke_abandoned

    settings = effective.settings
    request = command_request((name,), workspace, effective, purpose="standing")
    is_asked = request.spec.egress.wants_model and needs_credential(settings.run.model)
    wanted = one_each(known_secrets(settings.secrets)) if is_asked else []
    for secret in wanted:
        refuse_in(request.workspace, secret)
    await revoke_abandoned(state_dir(), tell)
    return replace(request, wanted=wanted, model_access=access_of(settings, request.spec, Lent()))
