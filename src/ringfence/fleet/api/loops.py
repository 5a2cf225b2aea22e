"""Routes of the loops of this machine."""

from fastapi import APIRouter

router = APIRouter(tags=["loops"])
