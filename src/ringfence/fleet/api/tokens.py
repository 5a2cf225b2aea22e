"""Routes of access tokens."""

from datetime import UTC, datetime, timedelta

from fastapi import APIRouter

from ringfence.fleet.api.access import ADMIN
from ringfence.fleet.api.context import FleetDatabase
from ringfence.fleet.api.requests import TokenRequest
from ringfence.fleet.queries.models import CreatedToken, TokenResponse
from ringfence.fleet.store.tokens import Tokens

router = APIRouter(tags=["tokens"])


@router.get("/v1/tokens", dependencies=[ADMIN])
async def tokens(database: FleetDatabase) -> list[TokenResponse]:
    """All tokens, by name, without their secrets."""
    return [TokenResponse.model_validate(each) for each in await Tokens(database).all()]


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
