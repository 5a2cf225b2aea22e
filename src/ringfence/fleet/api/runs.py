"""Routes of single runs of this machine."""

from fastapi import APIRouter

router = APIRouter(tags=["runs"])
