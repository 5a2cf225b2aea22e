"""Routes of the inbox: questions that wait for a person."""

from fastapi import APIRouter

router = APIRouter(tags=["inbox"])
