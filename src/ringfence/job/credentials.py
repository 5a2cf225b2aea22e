"""Leases a run's credentials before it begins, renews them while it lasts, and releases them before it is sealed.

Modules that read secrets are imported by the functions that need them, as they would slow down runs without secrets.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import AuthenticationFailed, InfrastructureFault, PolicyRefused
from ringfence.events import PolicyLoosened, SecretExpiring, SecretLeased, SecretRevoked
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.events import Emit
    from ringfence.job.model_access import ModelAccess
    from ringfence.job.request import Notify, RunRequest
    from ringfence.sandbox import Sandbox
    from ringfence.secret import Credential, KnownSecret, Lease, Provider, Redactor

_RELEASE_S = 60.0
_POLL_S = 30.0


@frozen
class RunCredentials:
    """The secrets that are leased to a run."""

    models: "tuple[Lease, ...]" = ()
    """Credentials for models, one for each provider that may be requested."""
    credentials: "tuple[Credential, ...]" = ()
    """Their current values, in the same order."""
    injected: "tuple[Lease, ...]" = ()
    """Leases of secrets that are injected into the sandbox."""
    swapped: "tuple[Lease, ...]" = ()
    """Leases of secrets that the gate injects into requests."""

    @property
    def leases(self) -> "tuple[Lease, ...]":
        """All leases, each once."""
        return tuple(dict.fromkeys((*self.models, *self.injected, *self.swapped)))

    def given_to(self, access: "ModelAccess") -> "ModelAccess":
        """Return model access with these credentials.

        Raises:
            UsageError: The base URL of a provider is not valid.
        """
        pairs = zip(self.credentials, self.models, strict=True)
        renewals = {credential.provider: lease.credential for credential, lease in pairs}
        return access.with_credentials(self.credentials, renewals)


@asynccontextmanager
async def with_credentials(
    request: "RunRequest", effective: "Effective", notify: "Notify", *, is_probed: bool = False
) -> AsyncIterator["RunRequest"]:
    """Yield the request with its credentials, which are leased until the context is left.

    Args:
        request: The run. Its model access, if any, has no credentials yet.
        effective: The configuration.
        notify: As for `lease_credentials`.
        is_probed: Whether to test the agent's credential while the sandbox is prepared.

    Raises:
        AuthenticationFailed, InfrastructureFault, PolicyRefused: As `lease_credentials`.
        UsageError: The base URL of a provider is not valid.
    """
    access = request.model_access
    is_paid = access is not None and access.needs_credential
    provider = access.provider if access is not None and is_paid else None
    others = is_paid and request.spec.egress.wants_model and not (access and access.agent_is_inside)
    leasing = lease_credentials(effective, request.workspace, model=provider, others=others, notify=notify)
    async with leasing as leased:
        if access is not None:
            access = leased.given_to(access)
        probe = None
        if access is not None and provider is not None and is_probed:
            from ringfence.model.probe import credential_check

            probe = credential_check(leased.credentials[0], access.model)
        yield replace(
            request,
            leases=leased.leases,
            injected=leased.injected,
            model_access=access,
            credential_probe=probe,
        )


@asynccontextmanager
async def lease_credentials(
    effective: "Effective",
    workspace: Path,
    *,
    notify: "Notify",
    model: "Provider | None" = None,
    others: bool = False,
) -> AsyncIterator[RunCredentials]:
    """Lease the secrets that a run needs until the context is left.

    Args:
        effective: The configuration, which says where secrets are and whether any are injected.
        workspace: The directory in which the agent works; no secret is read from there.
        notify: Called with warnings about where a secret is stored, and with failures to release one.
        model: Provider of the model that the run itself requests; None: it requests none.
        others: Whether processes inside may request models of any provider for which there is a credential.

    Raises:
        AuthenticationFailed: The run's own credential, or one of `egress.swap`, is missing, has expired or is not
        available, or no credential is.
        PolicyRefused: A secret is stored in the workspace.
        InfrastructureFault: A source cannot be reached.
    """
    wants_inside = effective.settings.auth == "inject"
    if model is None and not others and not wants_inside and not effective.settings.egress.swap:
        yield RunCredentials()
        return
    from ringfence.secret import credential_of, known_secrets, lease_secrets

    known = known_secrets(effective.settings.secrets)
    needed = [credential_of(model, known)] if model is not None else []
    found = one_per_provider(known) if others or wants_inside else []
    needed += [secret for secret in found if others and secret.provider != model]
    inside = found if wants_inside else []
    swapped = _swapped(effective, known)
    for secret in (*needed, *inside, *swapped):
        refuse_in_workspace(workspace, secret)
    required = [secret.name for secret in needed if secret.provider == model]
    required += [secret.name for secret in swapped]
    async with lease_secrets(
        (*needed, *inside, *swapped), state=state_dir(), warn=notify, required=required
    ) as leases:
        models = tuple(leases[secret.name] for secret in needed if secret.name in leases)
        credentials = tuple([await lease.credential() for lease in models])
        yield RunCredentials(
            models,
            credentials,
            tuple(leases[secret.name] for secret in inside if secret.name in leases),
            tuple(leases[secret.name] for secret in swapped),
        )


def _swapped(effective: "Effective", known: "dict[str, KnownSecret]") -> "list[KnownSecret]":
    """The secrets of `egress.swap`.

    Raises:
        AuthenticationFailed: The configuration does not say where a secret is.
    """
    names = [swap.secret for swap in effective.settings.egress.swap]
    for name in names:
        if name not in known:
            raise AuthenticationFailed(
                f"egress.swap names secret {name!r}, and nothing says where it is; add it under `secrets:`"
            )
    return [known[name] for name in names]


def one_per_provider(known: "dict[str, KnownSecret]") -> "list[KnownSecret]":
    """Return the credential of each provider that has one.

    Raises:
        AuthenticationFailed: No provider has one.
    """
    from ringfence.secret import credential_of, credentials_of

    found = [
        mine[0] for mine in (credentials_of("anthropic", known), credentials_of("openai", known)) if mine
    ]
    return found or [credential_of("anthropic", known)]


def refuse_in_workspace(workspace: Path, secret: "KnownSecret") -> None:
    """Check that a secret is not stored where the agent could read it.

    Raises:
        PolicyRefused: It is.
    """
    path = secret.reference.path
    if path is not None and path.resolve().is_relative_to(workspace.resolve()):
        raise PolicyRefused(
            f"secret {secret.name!r} ({secret.reference}) lies in the workspace, where the agent can read it; "
            "move it elsewhere",
            rule="secret-in-workspace",
        )


@asynccontextmanager
async def recorded_leases(
    leases: "Sequence[Lease]", *, run: str, redactor: "Redactor", emit: "Emit"
) -> AsyncIterator[None]:
    """Record the leases of a run, renew them while it lasts, release them at its end.

    Args:
        leases: The leases of the run.
        run: The run's id.
        redactor: Is extended by every new value of a lease.
        emit: Writes an event.
    """
    for lease in leases:
        lease.assign(run, on_values=redactor.learn)
    try:
        for lease in leases:
            await emit(
                SecretLeased(
                    lease=lease.id,
                    secret=lease.name,
                    source=lease.source,
                    expires_at=_isoformat(lease.expires_at),
                )
            )
        async with anyio.create_task_group() as renewing:
            for lease in leases:
                renewing.start_soon(_renew, lease, emit)
            yield
            renewing.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(_RELEASE_S, shield=True):
            for lease in leases:
                problem = await lease.release()
                await emit(SecretRevoked(lease=lease.id, secret=lease.name, problem=problem))


@asynccontextmanager
async def concurrent_probe(
    check: Callable[[], Coroutine[Any, Any, None]] | None,
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run `check` concurrently with the body, which gets a function that waits for it. An exception of one ends both.

    If the body ends without having waited, the check is cancelled.
    """
    passed = anyio.Event()

    async def run() -> None:
        if check is not None:
            await check()
        passed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield passed.wait
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def with_own_leases(request: "RunRequest", environ: Mapping[str, str]) -> "AsyncIterator[RunRequest]":
    """Yield the request with leases of its secrets, as far as they are available, until the context is left.

    Args:
        request: The run.
        environ: The environment in which sources of secrets search.

    Raises:
        AuthenticationFailed, InfrastructureFault: No secret is available.
    """
    from ringfence.secret import lease_secrets

    async with lease_secrets(request.wanted, state=state_dir(), warn=_log, environ=environ) as found:
        leases = tuple(found.values())
        access = request.model_access
        if access is not None and leases:
            leased = RunCredentials(leases, tuple([await lease.credential() for lease in leases]))
            access = leased.given_to(access)
        yield replace(request, leases=leases, model_access=access)


async def inject(leases: "Sequence[Lease]", sandbox: "Sandbox", emit: "Emit") -> None:
    """Inject secrets into a sandbox: as variables of every command, and logins as the file that their program reads.

    A login's file can be used but not renewed, as renewing it inside would end the login outside.

    Raises:
        PolicyRefused: There is no fence, and a file would replace the user's own.
    """
    if leases and not sandbox.facts.is_fence:
        raise PolicyRefused(
            "auth: inject is refused on the bare host, where commands have your own files and logins; leave it out",
            rule="auth-inject-host",
        )
    for lease in leases:
        content = await lease.login_copy()
        where = f"{sandbox.facts.home}/.codex/auth.json" if content is not None else f"${lease.name}"
        await emit(PolicyLoosened(what=f"{lease.name} is inside as {where}", by="auth: inject"))
        if content is not None:
            await sandbox.write_file(where, content, mode=0o600)
        else:
            sandbox.add_environment({lease.name: (await lease.current()).text})


def _log(line: str) -> None:
    """Write to the log of a supervisor, which is its stderr."""
    sys.stderr.write(f"{line}\n")


async def _renew(lease: "Lease", emit: "Emit") -> None:
    """Renew a secret before it expires, so that a new one is ready; record once each value that cannot be renewed."""
    from ringfence.secret.lease import RENEW_BEFORE

    reported: datetime | None = None
    while True:
        end = lease.expires_at
        now = datetime.now(UTC)
        if end is None or end == reported:
            await anyio.sleep(_POLL_S)
            continue
        if end > now + RENEW_BEFORE:
            # No longer, as clocks are set and machines sleep.
            left_s = (end - RENEW_BEFORE - now) / timedelta(seconds=1)
            await anyio.sleep(min(_POLL_S, max(0.1, left_s)))
            continue
        reason = "its source gives no later one"
        try:
            await lease.current()
        except (AuthenticationFailed, InfrastructureFault) as exc:
            reason = str(exc)
        if lease.expires_at == end:
            reported = end
            await emit(
                SecretExpiring(lease=lease.id, secret=lease.name, expires_at=_isoformat(end), reason=reason)
            )


def _isoformat(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")
