"""Routes of workers: the machines that run jobs."""

from fastapi import APIRouter

router = APIRouter(tags=["workers"])
