"""Routes of access tokens."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ringfence.fleet.api.access import ADMIN
from ringfence.fleet.api.context import FleetDatabase
from ringfence.fleet.api.models import Answer
from ringfence.fleet.store.tokens import Tokens, TokenScope

router = APIRouter(tags=["tokens"])


class TokenAnswer(Answer):
    """A token, without its secret."""

    name: str
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None
    """None: never."""
    used_at: datetime | None
    """The last use, to the minute."""
    is_expired: bool


class TokenRequest(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scope: TokenScope
    expires_s: Annotated[float, Field(gt=0, le=10 * 365 * 86400)] | None = None
    """Seconds until it expires; null: never."""


class CreatedToken(Answer):
    """A new token. It is shown only here."""

    name: str
    token: str


@router.get("/v1/tokens", dependencies=[ADMIN])
async def tokens(database: FleetDatabase) -> list[TokenAnswer]:
    """All tokens, by name, without their secrets."""
    return [TokenAnswer.model_validate(each, from_attributes=True) for each in await Tokens(database).all()]


@router.post("/v1/tokens", status_code=201, dependencies=[ADMIN])
async def create(wanted: TokenRequest, database: FleetDatabase) -> CreatedToken:
    """Create a token."""
    expires_at = None if wanted.expires_s is None else datetime.now(UTC) + timedelta(seconds=wanted.expires_s)
    token = await Tokens(database).create(wanted.name, wanted.scope, expires_at=expires_at)
    return CreatedToken(name=wanted.name, token=token)


@router.delete("/v1/tokens/{name}", dependencies=[ADMIN])
async def remove(name: str, database: FleetDatabase) -> None:
    """Remove a token; from then on it is refused."""
    await Tokens(database).remove(name)
