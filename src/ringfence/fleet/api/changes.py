"""The stream of state changes, as server-sent events."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from ringfence.fleet.api.access import READ
from ringfence.fleet.api.context import ApiContext, Context

router = APIRouter(tags=["changes"])


@router.get(
    "/v1/changes",
    dependencies=[READ],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
)
async def changes(context: Context) -> StreamingResponse:
    """What changes from now on: events `job`, `agent`, `schedule`, `worker` and `inbox`, within 0.3 s.

    Each has JSON with `id`, and for jobs `state` and `agent`. After `reset` a client reads everything again.
    """
    return StreamingResponse(_events(context), media_type="text/event-stream")


async def _events(context: ApiContext) -> AsyncIterator[str]:
    async for change in context.changes.listen():
        if change is None:
            yield ": alive\n\n"
        else:
            data = {name: value for name, value in asdict(change).items() if name != "noun" and value}
            yield f"event: {change.noun}\ndata: {json.dumps(data)}\n\n"
