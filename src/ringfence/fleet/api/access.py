"""Who may do what: the scopes of routes, and how a request gets its scope."""

import getpass
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

TokenScope = Literal["read", "act", "admin"]
SCOPES: tuple[TokenScope, ...] = ("read", "act", "admin")
"""Each scope includes those before it."""
_KEY = "ringfence.principal"


@dataclass(frozen=True)
class Principal:
    """Who sent a request."""

    name: str
    """The user's name on this machine, or `token NAME`."""
    scope: TokenScope

    def may(self, scope: TokenScope) -> bool:
        """Whether a route of a scope is open to it."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


async def get_principal(request: Request) -> Principal:
    """Who sent a request.

    Raises:
        HTTPException: Nothing in front of the application has said so (401).
    """
    found = request.scope.get(_KEY)
    if not isinstance(found, Principal):
        raise HTTPException(401, "this request carries no access token")
    return found


Sender = Annotated[Principal, Depends(get_principal)]
"""A parameter of a route that records who asked for a change."""
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
"""For a route that changes the fleet itself: its tokens, workers, files, or its end."""


class LocalAccess:
    """Grants everything: to requests on the Unix socket that only its owner can open, or from this process."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._principal = Principal(_user_name(), "admin")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its sender."""
        await self._app({**scope, _KEY: self._principal}, receive, send)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in containers
        return "user"
