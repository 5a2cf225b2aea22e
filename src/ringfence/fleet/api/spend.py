"""Routes of spend: what agents used, by day."""

from typing import Annotated

from fastapi import APIRouter, Query

from ringfence.fleet.api.access import READ
from ringfence.fleet.api.context import FleetData
from ringfence.fleet.queries.models import SpendReport
from ringfence.fleet.queries.spend import MAX_DAYS, report_spend

router = APIRouter(tags=["spend"])


@router.get("/v1/spend", dependencies=[READ])
async def spend(source: FleetData, days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 14) -> SpendReport:
    """What each agent spent on each of the last days, and the budgets of today."""
    return await report_spend(source, days)
