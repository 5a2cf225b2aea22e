"""Stores access tokens of the HTTP API as digests. A token is shown once, when it is created."""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ringfence.errors import NotFound, UsageError
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import milliseconds, moment
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import TOKENS

TokenScope = Literal["read", "act", "admin"]
SCOPES: tuple[TokenScope, ...] = ("read", "act", "admin")
"""Each scope includes those before it."""
PREFIX = "rft_"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_USE_MS = 60_000
"""The minimum interval between updates of a token's last use, since each is a write."""


@dataclass(frozen=True)
class TokenState:
    """A token, without its secret."""

    name: str
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None
    """None: never."""
    used_at: datetime | None
    """The last use, to the minute."""

    @property
    def is_expired(self) -> bool:
        """Whether the token is no longer valid."""
        return self.expires_at is not None and milliseconds(self.expires_at) <= now_ms()


class Tokens:
    """The tokens in a database. Safe to use from several processes and machines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, scope: TokenScope, *, expires_at: datetime | None = None) -> str:
        """Create a token and return it: `rft_` and 43 characters, with 256 random bits.

        Raises:
            UsageError: The name is taken or not valid.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name[:80]!r} is not a valid name of a token; write up to 64 letters, digits, '.', '-' and '_'"
            )
        token = PREFIX + secrets.token_urlsafe(32)
        row = {"name": name, "digest": _digest(token), "scope": scope, "created_ms": now_ms()}
        expires_ms = None if expires_at is None else milliseconds(expires_at)

        def act(connection: Connection) -> None:
            try:
                connection.execute(insert(TOKENS).values(**row, expires_ms=expires_ms))
            except IntegrityError as exc:
                raise UsageError(
                    f"there is a token {name!r} already; `ringfence fleet token rm {name}` removes it"
                ) from exc

        await self._database.write(act)
        return token

    async def all(self) -> list[TokenState]:
        """All tokens, by name."""
        query = select(TOKENS).order_by(TOKENS.c.name)
        return await self._database.read(
            lambda connection: [_state(row) for row in connection.execute(query).mappings()]
        )

    async def remove(self, name: str) -> None:
        """Remove a token; from then on it is rejected.

        Raises:
            NotFound: There is no token of this name.
        """
        query = delete(TOKENS).where(TOKENS.c.name == name)
        if not await self._database.write(lambda connection: connection.execute(query).rowcount):
            raise NotFound(f"there is no token {name[:80]!r}; `ringfence fleet token ls` lists them")

    async def find(self, token: str) -> TokenState | None:
        """The valid token with this secret; None if there is none, or it has expired."""
        query = select(TOKENS).where(TOKENS.c.digest == _digest(token))
        row = await self._database.read(lambda connection: connection.execute(query).mappings().first())
        if row is None or _state(row).is_expired:
            return None
        now = now_ms()
        if row["used_ms"] is None or now - row["used_ms"] >= _USE_MS:
            note = update(TOKENS).where(TOKENS.c.digest == row["digest"]).values(used_ms=now)
            await self._database.write(lambda connection: connection.execute(note))
        return _state(row)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _state(row: Any) -> TokenState:
    created_at = moment(row["created_ms"])
    assert created_at is not None
    return TokenState(
        row["name"], row["scope"], created_at, moment(row["expires_ms"]), moment(row["used_ms"])
    )
