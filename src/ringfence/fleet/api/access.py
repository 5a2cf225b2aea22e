"""Controls access to the API: the scopes of routes, and how a request gets its scope.

The application refuses every request without a sender. `LocalAccess` wraps it on the Unix socket, which only its owner
can open, and `TokenAccess` on TCP. A page of another site can do nothing: it cannot set the header with the token, the
names in `Host` and `Origin` are checked, no response allows another origin, and bodies must be JSON.
"""

import getpass
import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from ringfence.errors import ExitCode, InfrastructureFault
from ringfence.fleet.api.error_responses import refusal
from ringfence.fleet.log import Log
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tokens import SCOPES, Tokens, TokenScope

_KEY = "ringfence.principal"
_MAX_FAILURES = 10
_WINDOW_S = 60.0
_MAX_ADDRESSES = 10_000
_READ_METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class Principal:
    """The sender of a request."""

    name: str
    """The user's name on this machine, or `token NAME`."""
    scope: TokenScope

    def may(self, scope: TokenScope) -> bool:
        """Whether it may use a route of a scope."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


async def get_principal(request: Request) -> Principal:
    """Return the sender of a request.

    Raises:
        HTTPException: No wrapper of the application has authenticated the request (401).
    """
    found = request.scope.get(_KEY)
    if not isinstance(found, Principal):
        raise HTTPException(401, "this request carries no access token", {"WWW-Authenticate": "Bearer"})
    return found


Sender = Annotated[Principal, Depends(get_principal)]
"""A parameter of a route that records who requested a change."""
_BEARER = HTTPBearer(
    auto_error=False, scheme_name="token", description="`Authorization: Bearer rft_...`, over TCP."
)


async def _check_scope(
    scopes: SecurityScopes,
    sender: Sender,
    _token: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> None:
    for scope in SCOPES:
        if scope in scopes.scopes and not sender.may(scope):
            raise HTTPException(403, f"this needs a token of scope {scope!r}; yours has {sender.scope!r}")


READ = Security(_check_scope, scopes=["read"])
"""For `dependencies=[...]` of a route that only reads."""
ACT = Security(_check_scope, scopes=["act"])
"""For a route that starts, ends or answers jobs, or applies their work."""
ADMIN = Security(_check_scope, scopes=["admin"])
"""For a route that changes the fleet itself: its tokens, workers or files, or that stops it."""


class LocalAccess:
    """Grants every scope to requests on the Unix socket, which only its owner can open, or from this process."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._principal = Principal(_user_name(), "admin")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request with its sender."""
        await self._app({**scope, _KEY: self._principal}, receive, send)


class TokenAccess:
    """Forwards requests that have a valid token and are addressed to this server.

    Args:
        app: The application.
        database: The fleet's database, which holds the tokens.
        hosts: Names, with or without port, by which clients may address the server.
        log: Reports every request that changes something, with its sender.
    """

    def __init__(self, app: ASGIApp, database: Database, *, hosts: Sequence[str], log: Log) -> None:
        self._app = app
        self._tokens = Tokens(database)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._log = log
        self._failures = FailureLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request with its sender, or refuse it."""
        if scope["type"] != "http":
            return
        try:
            principal = await self._authenticate(scope)
        except HTTPException as exc:
            response = refusal(exc.status_code, str(exc.detail), ExitCode.AUTHENTICATION)
            response.headers.update(exc.headers or {})
            await response(scope, receive, send)
            return
        except InfrastructureFault as exc:
            await refusal(503, str(exc), exc.exit_code)(scope, receive, send)
            return
        if scope["method"] not in _READ_METHODS:
            line = f"{principal.name}: {scope['method']} {scope['path'][:200]}"
            self._log(line, event="api.request", level="info", by=principal.name)
        await self._app({**scope, _KEY: principal}, receive, send)

    async def _authenticate(self, scope: Scope) -> Principal:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if not self._is_own(host):
            raise HTTPException(
                421, f"{host[:200]!r} is not a name of this server; `fleet.api.hosts` lists its names"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(urlsplit(origin.lower()).netloc):
            raise HTTPException(403, f"requests from pages of {origin[:200]!r} are refused")
        kind, _, token = headers.get("authorization", "").partition(" ")
        found = await self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            # Only failures are limited: otherwise one client would lock out all others behind the same proxy.
            address = _network((scope.get("client") or ("unknown", 0))[0])
            wait_s = self._failures.wait_s(address)
            if wait_s > 0:
                retry = {"Retry-After": str(int(wait_s) + 1)}
                raise HTTPException(429, f"too many wrong tokens; wait {int(wait_s) + 1} s", retry)
            self._failures.add(address)
            advice = "`ringfence fleet token create NAME` on the fleet's machine creates one"
            problem = (
                "the access token is wrong or has expired"
                if token
                else "this request carries no access token"
            )
            raise HTTPException(401, f"{problem}; {advice}", {"WWW-Authenticate": "Bearer"})
        return Principal(f"token {found.name}", found.scope)

    def _is_own(self, host: str) -> bool:
        """Whether a host, with or without port, is one of the server's names; a name without port matches any port."""
        return host in self._hosts or host.rpartition(":")[0] in self._hosts


class FailureLimiter:
    """Counts failures by address; after ten within a minute the address has to wait before it may fail again."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> None:
        """Count a failure now."""
        times = self._failures.setdefault(address, deque(maxlen=_MAX_FAILURES))
        times.append(time.monotonic())
        self._failures.move_to_end(address)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def wait_s(self, address: str) -> float:
        """Return how many seconds an address has to wait; 0 means not at all."""
        times = self._failures.get(address)
        if times is None or len(times) < _MAX_FAILURES:
            return 0.0
        return max(0.0, times[0] + _WINDOW_S - time.monotonic())


def _network(address: str) -> str:
    """Return the key that failures are counted by: for IPv6 the /64 network, since each user has one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in containers
        return "user"
