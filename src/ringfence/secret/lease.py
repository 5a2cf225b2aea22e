"""A secret lent to one run: read when the run begins, renewed while it lasts, forgotten and revoked when it ends."""

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.errors import AuthenticationFailed, InfrastructureFault, RingfenceError
from ringfence.process import run_process
from ringfence.secret.book import LeaseEntry, LeaseRecord, open_entry
from ringfence.secret.codex.file import read_login_file
from ringfence.secret.codex.login import CodexLogin
from ringfence.secret.credentials import CODEX_LOGIN, VARIABLES, Credential
from ringfence.secret.known import KnownSecret
from ringfence.secret.redact import remember
from ringfence.secret.source import read_source
from ringfence.secret.source.command import command_line
from ringfence.secret.value import SecretValue

RENEW_BEFORE = timedelta(minutes=5)
"""A secret that ends within it is asked for again."""

_ASK_EVERY = timedelta(seconds=30)
_REVOKE_S = 35.0


class Lease:
    """One secret, for one run. Made by `leased`.

    Attributes:
        name: Of the secret.
        source: Where it comes from, in a word.
        problem: Why it could not be revoked, once it was given back.
        on_value: Called with the values (also those beside it) whenever it was read anew.
    """

    def __init__(self, secret: KnownSecret, entry: LeaseEntry, environ: Mapping[str, str]) -> None:
        self.name = secret.name
        self.source = str(secret.reference)
        self.on_value: Callable[[tuple[str, ...]], None] = lambda _values: None
        self.problem: str | None = None
        self._secret = secret
        self._entry = entry
        self._environ = environ
        self._value: SecretValue | None = None
        self._asked_at = datetime.min.replace(tzinfo=UTC)
        self._turn = anyio.Lock()

    @property
    def id(self) -> str:
        """Of the lease."""
        return self._entry.record.id

    @property
    def expires_at(self) -> datetime | None:
        """When the secret ends, in UTC; None: not known."""
        return None if self._value is None else self._value.expires_at

    @property
    def values(self) -> tuple[str, ...]:
        """What must be in no record: the secret and what came beside it."""
        return () if self._value is None else (self._value.text, *self._value.beside)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should be told about the place where it is kept."""
        return () if self._value is None else self._value.warnings

    async def current(self) -> SecretValue:
        """The secret, read anew if it is about to end.

        Raises:
            AuthenticationFailed: It cannot be had, has ended, or was given back.
            InfrastructureFault: Its source cannot be reached.
        """
        async with self._turn:
            if self._entry.is_closed:
                raise AuthenticationFailed(f"secret {self.name!r} was given back; its run is over")
            now = datetime.now(UTC)
            is_due = self._value is None or self._value.ends_within(RENEW_BEFORE, now)
            if is_due and now - self._asked_at >= _ASK_EVERY:
                self._asked_at = now
                await self._renew(now)
            assert self._value is not None
            if self._value.ends_within(timedelta(), datetime.now(UTC)):
                raise AuthenticationFailed(
                    f"secret {self.name!r} ({self.source}) ended at {shown(self._value.expires_at)}; renew it"
                )
            return self._value

    async def credential(self) -> Credential:
        """The secret as the model's credential; ask for it at each request, since it may be renewed.

        Raises:
            AuthenticationFailed, InfrastructureFault: As `current`; or the name is no credential's.
        """
        if self.name not in VARIABLES:
            raise AuthenticationFailed(
                f"secret {self.name!r} is no model's credential; those are {', '.join(VARIABLES)}"
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

    async def lent_file(self) -> bytes | None:
        """For a login that is kept in a file: a copy of that file which cannot be renewed. None for others.

        Raises:
            AuthenticationFailed, InfrastructureFault: As `current`.
        """
        path = self._secret.reference.path
        if self.name != CODEX_LOGIN or path is None:
            return None
        return (await CodexLogin(path, self._environ, self._where).read_file()).lent()

    def bind(self, run: str) -> None:
        """Say which run it is for."""
        self._entry.update(run=run)

    async def give_back(self) -> str | None:
        """Forget the secret, and revoke it where its source says how. Again: nothing.

        Returns:
            Why it could not be revoked, in a line without the secret; None if all is well.
        """
        async with self._turn:
            value, self._value = self._value, None
            if self._entry.is_closed:
                return None
            try:
                self.problem = await revoke(self._entry.record, value.text if value else "", self._environ)
            finally:
                self._entry.close()
            return self.problem

    @property
    def _where(self) -> str:
        return f"secret {self.name!r} ({self.source})"

    async def _read(self, now: datetime) -> SecretValue:
        reference = self._secret.reference
        if self.name == CODEX_LOGIN:
            if reference.file is None or reference.path is None:
                raise AuthenticationFailed(
                    f"{self._where}: a login of Codex is renewed in its file; write file:/PATH/auth.json"
                )
            return await CodexLogin(reference.path, self._environ, self._where).read()
        value = await read_source(self.name, reference, self._environ, lease=self.id)
        if reference.ttl is None:
            return value
        latest = now + timedelta(seconds=reference.ttl)
        return replace(value, expires_at=min(value.expires_at or latest, latest))

    async def _renew(self, now: datetime) -> None:
        """Read it anew; while the old value is good, a source that fails now may fail."""
        try:
            self._keep(await self._read(now))
        except (AuthenticationFailed, InfrastructureFault):
            if self._value is None or self._value.ends_within(timedelta(), datetime.now(UTC)):
                raise

    def _keep(self, value: SecretValue) -> None:
        self._value = value
        remember(self.values)
        self.on_value(self.values)
        self._entry.update(expires_at=None if value.expires_at is None else value.expires_at.timestamp())


@asynccontextmanager
async def leased(
    secret: KnownSecret, *, state: Path, run: str = "", environ: Mapping[str, str] | None = None
) -> AsyncIterator[Lease]:
    """Have a secret until the context is left; then it is forgotten and, where its source says how, revoked.

    Args:
        secret: Which one.
        state: The state directory, where all leases are listed.
        run: The run it is for, if that is known yet.
        environ: Instead of `os.environ`.

    Raises:
        AuthenticationFailed: It cannot be had, or has ended.
        InfrastructureFault: Its source cannot be reached, or the state directory cannot be written.
    """
    environ = os.environ if environ is None else environ
    reference = secret.reference
    entry = open_entry(
        state,
        name=secret.name,
        source=str(reference),
        run=run,
        revoke=reference.revoke or (),
        timeout_s=reference.timeout,
    )
    lease = Lease(secret, entry, environ)
    try:
        await lease.current()
        yield lease
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_REVOKE_S):
            await lease.give_back()
        entry.close()


@asynccontextmanager
async def leased_each(
    secrets: Iterable[KnownSecret],
    *,
    state: Path,
    tell: Callable[[str], None],
    needed: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[dict[str, Lease]]:
    """Have those of several secrets that can be had, by name; others are told of and left out.

    Args:
        secrets: Which ones.
        state: The state directory.
        tell: Is told of each that cannot be had.
        needed: Names of those without which nothing goes.
        environ: Instead of `os.environ`.

    Raises:
        AuthenticationFailed, InfrastructureFault: A needed one cannot be had, or none at all.
    """
    leases: dict[str, Lease] = {}
    problem: AuthenticationFailed | InfrastructureFault | None = None
    async with AsyncExitStack() as stack:
        for secret in {secret.name: secret for secret in secrets}.values():
            try:
                lease = await stack.enter_async_context(leased(secret, state=state, environ=environ))
            except (AuthenticationFailed, InfrastructureFault) as exc:
                if secret.name in needed:
                    raise
                problem = exc
                tell(f"{exc}; it is left out")
                continue
            leases[secret.name] = lease
        if problem is not None and not leases:
            raise problem
        yield leases


async def glance(secret: KnownSecret) -> SecretValue | None:
    """A secret as it lies there, where looking takes no program, asks nobody and renews nothing; else None.

    Raises:
        AuthenticationFailed: It is not there, or is none.
    """
    where, path = f"secret {secret.name!r} ({secret.reference})", secret.reference.path
    if not secret.is_cheap:
        return None
    if secret.name == CODEX_LOGIN and path is not None:
        return (await anyio.to_thread.run_sync(read_login_file, path, where)).value(where)
    return await read_source(secret.name, secret.reference, os.environ)


async def revoke(record: LeaseRecord, value: str, environ: Mapping[str, str]) -> str | None:
    """Run a lease's revocation, if there is one; why it failed, without the secret, or None.

    Args:
        record: Of the lease.
        value: The secret, for the program's stdin; empty if its run died.
        environ: The program's environment.
    """
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


def shown(moment: datetime | None) -> str:
    """A time for people."""
    return "?" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
