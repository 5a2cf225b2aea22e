"""Routes of access tokens."""

from fastapi import APIRouter

router = APIRouter(tags=["tokens"])
