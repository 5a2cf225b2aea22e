"""The login as a source: the access token of the file, renewed first where it is about to end."""

import fcntl
import ipaddress
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from ringfence.errors import AuthenticationFailed, InfrastructureFault, UsageError, next_step
from ringfence.flock import try_lock
from ringfence.process import DEVNULL, PIPE, start_process
from ringfence.secret.codex.file import DEADLINE_S, LoginFile, read_login_file
from ringfence.secret.value import SecretValue

URL_VARIABLE = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"
"""Codex's own variable for where logins are renewed."""

_URL = "https://auth.openai.com/oauth/token"
_MARGIN = timedelta(minutes=5)
_LOCK_S = 3 * DEADLINE_S
_POLL_S = 0.05


class CodexLogin:
    """The login in an `auth.json`.

    Args:
        path: The file.
        environ: May say where logins are renewed, by `URL_VARIABLE`.
        where: For errors.
        margin: A token that ends within it is renewed.
    """

    def __init__(
        self, path: Path, environ: Mapping[str, str], where: str, *, margin: timedelta = _MARGIN
    ) -> None:
        self._path = path
        self._url = environ.get(URL_VARIABLE) or _URL
        self._environ = environ
        self._where = where
        self._margin = margin

    async def read(self) -> SecretValue:
        """Read the login as a secret. Raises as `read_source`."""
        file = await self.read_file()
        return file.value(self._where)

    async def read_file(self) -> LoginFile:
        """The file, with a login that is good for a while.

        Raises:
            AuthenticationFailed: There is none, or it cannot be renewed any more.
            InfrastructureFault: It has ended, and where it is renewed cannot be reached.
        """
        file = await self._look()
        if self._is_good(file):
            return file
        _check_url(self._url)
        async with self._lock() as lock:
            file = await self._look()
            return file if self._is_good(file) else await self._renewed(file, lock)

    async def _look(self) -> LoginFile:
        return await anyio.to_thread.run_sync(read_login_file, self._path, self._where)

    def _is_good(self, file: LoginFile) -> bool:
        value = file.value(self._where)
        return value.is_key or not value.ends_within(self._margin, datetime.now(UTC))

    async def _renewed(self, before: LoginFile, lock: int) -> LoginFile:
        ended, reason = await self._renew(lock)
        after = await self._look()
        if self._is_good(after):
            return after
        left = before.value(self._where)
        if ended in ("renewed", "overtaken"):
            raise AuthenticationFailed(
                f"{self._where}: the renewed login has ended already; see to this clock"
            )
        if ended != "refused" and not left.ends_within(timedelta(), datetime.now(UTC)):
            return before  # it is good for some minutes yet, and the next one tries again
        if ended == "refused":
            raise AuthenticationFailed(
                f"{self._where}: the login in {str(self._path)!r} cannot be renewed ({reason}); run `codex login`"
            )
        raise InfrastructureFault(
            f"{self._where}: the login has ended and could not be renewed at {_origin(self._url)} ({reason}); "
            "try again later"
        )

    async def _renew(self, lock: int) -> tuple[str, str]:
        """Have it renewed by a process that nobody stops: what was sent must be written down.

        The lock goes along: as long as one of the two holds it, nobody else sends the same token.
        """
        with anyio.CancelScope(shield=True):
            process = await start_process(
                [sys.executable, "-P", "-m", "ringfence.secret.codex.renewal", str(self._path), self._url],
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                cwd=Path("/"),
                env=self._environ,
                pass_fds=(lock,),
            )
            printed = bytearray()
            async with process:
                assert process.stdout is not None
                async for chunk in process.stdout:
                    printed += chunk[:4096]
        try:
            told = json.loads(printed)
            return str(told["ended"]), str(told["reason"])
        except (ValueError, KeyError, TypeError):
            return "unreachable", f"its process ended with {process.returncode}"

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[int]:
        real = self._path.resolve()
        file = real.with_name(f".{real.name}.ringfence-lock")
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise InfrastructureFault(
                f"{self._where}: {str(file)!r} cannot be made, so the login cannot be renewed: {exc.strerror}; "
                f"{next_step(exc)}"
            ) from exc
        try:
            with anyio.move_on_after(_LOCK_S) as waiting:
                while not try_lock(descriptor, fcntl.LOCK_EX, what=str(file)):  # noqa: ASYNC110 - no event
                    await anyio.sleep(_POLL_S)
            if waiting.cancelled_caught:
                raise InfrastructureFault(
                    f"{self._where}: another process has been renewing the login for {_LOCK_S:g} s; try again later"
                )
            yield descriptor
        finally:
            os.close(descriptor)


def _check_url(url: str) -> None:
    """A refresh token is worth the whole login: it goes over TLS, or stays on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        return
    raise UsageError(f"{URL_VARIABLE}={url!r} is no https:// address; unset it")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _origin(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
