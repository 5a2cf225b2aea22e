"""Server-sent events: that something changed, and the log of a run as it is written."""

import json
from collections.abc import AsyncIterator

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.log import is_of_kind, read_entry
from ringfence.web.rendering import render_part

_RETRY_S = 1.0
_AWAY = "The fleet's server does not answer. Reconnecting …"


async def stream_changes(request: Request) -> Response:
    """Report what kinds of things changed, and when the API goes away and comes back."""
    return _events(_changes(request.app.state.api))


async def follow_log(request: Request) -> Response:
    """Send entries of a log as they are written, until the record is sealed."""
    noun = request.url.path.split("/")[1]
    query = request.query_params
    start = request.headers.get("last-event-id") or query.get("start", "0")
    return _events(
        _entries(
            request.app.state.api,
            noun,
            request.path_params["id"],
            start,
            query.get("show", "all"),
            query.get("attempt"),
        )
    )


def _events(content: AsyncIterator[str]) -> Response:
    return StreamingResponse(content, media_type="text/event-stream")


async def _changes(api: ApiClient) -> AsyncIterator[str]:
    is_away = False
    yield ": connected\n\n"
    while True:
        try:
            async with api.lines("changes") as lines:
                if is_away:
                    is_away = False
                    yield "event: back\ndata: \n\n"
                async for line in lines:
                    if line.startswith("event:"):
                        yield f"event: changed\ndata: {line.removeprefix('event:').strip()}\n\n"
        except ApiError:
            if not is_away:
                is_away = True
                yield f"event: away\ndata: {_AWAY}\n\n"
        await anyio.sleep(_RETRY_S)


async def _entries(
    api: ApiClient, noun: str, name: str, start: str, kind: str, attempt: str | None
) -> AsyncIterator[str]:
    yield ": connected\n\n"
    try:
        async with api.lines(noun, name, "events", follow="true", start=start, attempt=attempt) as lines:
            async for line in lines:
                if is_of_kind(line, kind):
                    html = render_part("entries", entries=[read_entry(line)])
                    data = "".join(f"data: {part}\n" for part in html.splitlines())
                    yield f"event: events\nid: {json.loads(line)['seq'] + 1}\n{data}\n"
    except ApiError:
        return  # the page connects again, from the last entry that it has
    yield "event: end\ndata: \n\n"
