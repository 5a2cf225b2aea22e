"""Routes of spend: what agents used, by day."""

from fastapi import APIRouter

router = APIRouter(tags=["spend"])
