"""The stream of state changes, as server-sent events."""

from fastapi import APIRouter

router = APIRouter(tags=["changes"])
