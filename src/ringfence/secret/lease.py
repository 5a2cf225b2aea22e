"""Leases of secrets: a lease reads a secret when a run begins, renews it during the run, and revokes it at the end."""

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from ringfence.errors import AuthenticationFailed, InfrastructureFault, RingfenceError
from ringfence.process import run_process
from ringfence.secret.credential import CODEX_LOGIN, VARIABLES, Credential, KnownSecret
from ringfence.secret.lease_file import LeaseFile, LeaseRecord, create_lease_file, remove_abandoned
from ringfence.secret.redact import register_secrets
from ringfence.secret.source import command_line, read_login_copy, read_source
from ringfence.secret.value import SecretValue

RENEW_BEFORE = timedelta(minutes=5)
"""A secret that expires sooner is read from its source again."""

_READ_INTERVAL = timedelta(seconds=30)
_RELEASE_S = 35.0


class Lease:
    """One secret that is leased for one run. `lease_secret` creates it.

    Attributes:
        name: The secret's name.
        source: The secret's source; of a command, the program without its arguments.
        problem: Why the secret could not be revoked when the lease was released; None before, and if it was.
    """

    def __init__(self, secret: KnownSecret, file: LeaseFile, environ: Mapping[str, str]) -> None:
        self.name = secret.name
        self.source = str(secret.reference)
        self.problem: str | None = None
        self._secret = secret
        self._file = file
        self._environ = environ
        self._value: SecretValue | None = None
        self._on_values: Callable[[tuple[str, ...]], None] = lambda _values: None
        self._read_at = datetime.min.replace(tzinfo=UTC)
        self._lock = anyio.Lock()

    @property
    def id(self) -> str:
        """The lease's own id."""
        return self._file.record.id

    @property
    def expires_at(self) -> datetime | None:
        """When the secret expires, in UTC; None if that is not known."""
        return None if self._value is None else self._value.expires_at

    @property
    def values(self) -> tuple[str, ...]:
        """The texts that must not appear in any record: the secret and its companions."""
        return () if self._value is None else self._value.all_texts

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user about the source of the secret, such as a file that others can read."""
        return () if self._value is None else self._value.warnings

    def assign(self, run: str, *, on_values: Callable[[tuple[str, ...]], None]) -> None:
        """Record which run holds the lease; `on_values` is called with the new values after each renewal."""
        self._on_values = on_values
        self._file.update(run=run)

    async def current(self) -> SecretValue:
        """Return the secret, which is read again if it is about to expire.

        Raises:
            AuthenticationFailed: The secret is not available, has expired, or was released.
            InfrastructureFault: Its source cannot be reached.
        """
        async with self._lock:
            if self._file.is_closed:
                raise AuthenticationFailed(f"secret {self.name!r} was released; its run is over")
            now = datetime.now(UTC)
            is_due = self._value is None or self._value.expires_within(RENEW_BEFORE, now)
            if is_due and now - self._read_at >= _READ_INTERVAL:
                self._read_at = now
                await self._renew(now)
            assert self._value is not None
            if self._value.expires_within(timedelta(), datetime.now(UTC)):
                advice = "run `codex login`" if self.name == CODEX_LOGIN else "renew it"
                raise AuthenticationFailed(
                    f"{self._secret.where} expired at {self._value.expires_at:%Y-%m-%d %H:%M} UTC; {advice}"
                )
            return self._value

    async def credential(self) -> Credential:
        """Return the secret as a model credential; call this for each request, since the secret may be renewed.

        Raises:
            AuthenticationFailed, InfrastructureFault: See `current`; also if the secret is not a model credential.
        """
        if self.name not in VARIABLES:
            raise AuthenticationFailed(
                f"secret {self.name!r} is not a model credential; those are {', '.join(VARIABLES)}"
            )
        value = await self.current()
        provider, kind = VARIABLES[self.name]
        return Credential(
            "api_key" if value.is_key else kind,
            value.text,
            f"{self.name} ({self.source})",
            provider,
            value.account_id,
            value.expires_at,
        )

    async def login_copy(self) -> bytes | None:
        """Return a copy of a login file that cannot be used to renew the login; None if the secret is not such a file.

        Raises:
            AuthenticationFailed, InfrastructureFault: See `current`.
        """
        await self.current()
        return await read_login_copy(self._secret)

    async def release(self) -> str | None:
        """Forget the secret, and revoke it if its source has a `revoke` command. Calling this again has no effect.

        Returns:
            Why it could not be revoked, in one line without the secret; None on success.
        """
        async with self._lock:
            value, self._value = self._value, None
            if self._file.is_closed:
                return None
            try:
                self.problem = await _revoke(self._file.record, value.text if value else "", self._environ)
            finally:
                self._file.close()
            return self.problem

    async def _renew(self, now: datetime) -> None:
        """Read the source; a failure is ignored as long as the old value has not expired."""
        try:
            value = await read_source(self._secret, self._environ, lease=self.id)
        except (AuthenticationFailed, InfrastructureFault):
            if self._value is None or self._value.expires_within(timedelta(), datetime.now(UTC)):
                raise
            return
        ttl = self._secret.reference.ttl
        if ttl is not None:
            latest = now + timedelta(seconds=ttl)
            value = replace(value, expires_at=min(value.expires_at or latest, latest))
        self._value = value
        register_secrets(value.all_texts)
        self._on_values(value.all_texts)
        self._file.update(expires_at=None if value.expires_at is None else value.expires_at.timestamp())


@asynccontextmanager
async def lease_secret(
    secret: KnownSecret, *, state: Path, run: str = "", environ: Mapping[str, str] | None = None
) -> AsyncIterator[Lease]:
    """Lease a secret until the context is left; then it is forgotten and, where its source says how, revoked.

    Args:
        secret: Which one.
        state: The state directory, where all leases are listed.
        run: The run it is for, if that is known yet.
        environ: Used instead of `os.environ`.

    Raises:
        AuthenticationFailed: It is not available, or has expired.
        InfrastructureFault: Its source cannot be reached, or the state directory cannot be written.
    """
    file = create_lease_file(state, secret, run)
    lease = Lease(secret, file, os.environ if environ is None else environ)
    try:
        await lease.current()
        yield lease
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_RELEASE_S):
            await lease.release()
        file.close()


@asynccontextmanager
async def lease_secrets(
    secrets: Iterable[KnownSecret],
    *,
    state: Path,
    warn: Callable[[str], None],
    required: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[dict[str, Lease]]:
    """Lease those secrets that are available, and yield the leases by name.

    Leases of holders that died are revoked first.

    Args:
        secrets: The secrets; duplicates count once.
        state: The state directory.
        warn: Called with one line for each secret that is not available, each that is stored where other users can
            read it, and each abandoned lease that cannot be revoked.
        required: The names of the secrets that must be available.
        environ: Used instead of `os.environ`.

    Raises:
        AuthenticationFailed, InfrastructureFault: A required secret is not available, or none is.
    """
    leases: dict[str, Lease] = {}
    problem: AuthenticationFailed | InfrastructureFault | None = None
    await revoke_abandoned(state, warn)
    async with AsyncExitStack() as stack:
        for secret in {secret.name: secret for secret in secrets}.values():
            try:
                lease = await stack.enter_async_context(lease_secret(secret, state=state, environ=environ))
            except (AuthenticationFailed, InfrastructureFault) as exc:
                if secret.name in required:
                    raise
                problem = exc
                warn(f"{exc}; it is left out")
                continue
            leases[secret.name] = lease
            for warning in lease.warnings:
                warn(f"WARNING: {warning}")
        if problem is not None and not leases:
            raise problem
        yield leases


async def read_cheaply(secret: KnownSecret) -> SecretValue | None:
    """Return the value of a secret that is a variable or a file; None for others, which may start a program or prompt.

    Raises:
        AuthenticationFailed: The variable or file does not exist, or does not hold a secret.
    """
    return await read_source(secret, os.environ) if secret.is_cheap else None


async def revoke_abandoned(state: Path, warn: Callable[[str], None]) -> None:
    """Revoke the leases of holders that died; `warn` is called for each that cannot be revoked."""
    for record in remove_abandoned(state):
        problem = await _revoke(record, "", os.environ)
        if problem is not None:
            warn(problem)


async def _revoke(record: LeaseRecord, value: str, environ: Mapping[str, str]) -> str | None:
    """Run a lease's revocation command with the secret as its input; return why it failed, without the secret."""
    if not record.revoke:
        return None
    argv = command_line(record.revoke, record.id)
    try:
        result = await run_process(
            argv,
            stdin=value.encode(),
            cwd=Path("/"),
            env=environ,
            timeout_s=record.timeout_s,
            output_limit_bytes=4096,
        )
    except InfrastructureFault as exc:
        return f"secret {record.name!r} could not be revoked: {exc}"
    except RingfenceError as exc:
        return str(exc)
    if result.ok:
        return None
    how = "did not end in time" if result.timed_out else f"exited with {result.exit_code}"
    return f"secret {record.name!r} could not be revoked: {argv[0]!r} {how}; revoke it by hand"
