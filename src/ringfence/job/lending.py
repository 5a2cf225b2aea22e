"""The secrets of a run: told to its record, watched while it lasts, given back before the record is closed."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import AuthenticationFailed, InfrastructureFault, PolicyRefused
from ringfence.events import PolicyLoosened, SecretExpiring, SecretLeased, SecretRevoked
from ringfence.job.request import Emit, RunRequest
from ringfence.sandbox import Sandbox
from ringfence.secret import Lease, Redactor
from ringfence.secret.lease import RENEW_BEFORE, lease_secrets

_GIVE_BACK_S = 60.0
_LOOK_EVERY_S = 30.0


@asynccontextmanager
async def lent(leases: Sequence[Lease], *, run: str, redactor: Redactor, emit: Emit) -> AsyncIterator[None]:
    """Have `leases` in a run.

    Args:
        leases: What the run is lent.
        run: Its id.
        redactor: Knows their values, and learns every further one that they get.
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
                    expires_at=_written(lease.expires_at),
                )
            )
        async with anyio.create_task_group() as watching:
            for lease in leases:
                watching.start_soon(_watch, lease, emit)
            yield
            watching.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(_GIVE_BACK_S, shield=True):
            for lease in leases:
                problem = await lease.release()
                await emit(SecretRevoked(lease=lease.id, secret=lease.name, problem=problem))


@asynccontextmanager
async def meanwhile(
    check: Callable[[], Coroutine[Any, Any, None]] | None,
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Do `check` beside the body, which is given what waits for it. What either raises ends both.

    A body that ends without having waited ends the check.
    """
    passed = anyio.Event()

    async def checked() -> None:
        if check is not None:
            await check()
        passed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(checked)
        yield passed.wait
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def with_own_leases(request: RunRequest, environ: Mapping[str, str]) -> AsyncIterator[RunRequest]:
    """The request with those of the secrets it wants that can be had; they are lent until the context is left.

    Args:
        request: The run.
        environ: Where sources of secrets look.

    Raises:
        AuthenticationFailed, InfrastructureFault: None can be had.
    """
    async with lease_secrets(request.wanted, state=state_dir(), warn=_log, environ=environ) as found:
        leases = list(found.values())
        access = request.model_access
        if access is not None and leases:
            credentials = [await lease.credential() for lease in leases]
            pairs = zip(credentials, leases, strict=True)
            renewals = {credential.provider: lease.credential for credential, lease in pairs}
            access = replace(access, credentials=credentials, renewals=renewals)
        yield replace(request, leases=leases, model_access=access)


async def inject(leases: Sequence[Lease], sandbox: Sandbox, emit: Emit) -> None:
    """Put secrets into a sandbox: as variables of every command, and logins as the file that their program reads.

    A login's file can be used but not renewed: renewed inside, it would end the login outside.

    Raises:
        PolicyRefused: There is no fence: a file would take the place of the user's own.
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
    """Into the log of a holder, whose stderr it is."""
    sys.stderr.write(f"{line}\n")


async def _watch(lease: Lease, emit: Emit) -> None:
    """Renew a secret before it ends, so that it is at hand; tell once for each that cannot be."""
    told: datetime | None = None
    while True:
        end = lease.expires_at
        now = datetime.now(UTC)
        if end is None or end == told or end > now + RENEW_BEFORE:
            await anyio.sleep(_wait_s(end, told, now))
            continue
        reason = "its source gives no later one"
        try:
            await lease.current()
        except (AuthenticationFailed, InfrastructureFault) as exc:
            reason = str(exc)
        if lease.expires_at == end:
            told = end
            await emit(
                SecretExpiring(lease=lease.id, secret=lease.name, expires_at=_written(end), reason=reason)
            )


def _wait_s(end: datetime | None, told: datetime | None, now: datetime) -> float:
    """Seconds until it is worth looking again; now and then in any case, as clocks are set and machines sleep."""
    if end is None or end == told:
        return _LOOK_EVERY_S
    return min(_LOOK_EVERY_S, max(0.1, (end - RENEW_BEFORE - now) / timedelta(seconds=1)))


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")
