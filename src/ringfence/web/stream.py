"""Sends server-sent events: notices of changes, and the entries of a log as they are written."""

import json
from collections.abc import Awaitable, Callable

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.log import is_of_kind, read_entry
from ringfence.web.renderer import render_part

Emit = Callable[[str], Awaitable[None]]
_RETRY_S = 0.5
_STORED_S = 2.0
"""How long to wait for changes without a daemon before checking for a daemon again."""
_UNKNOWN = object()
_AWAY = "The fleet's server does not answer. Reconnecting …"


class EventStream(Response):
    """A response of server-sent events, which ends when the browser disconnects.

    Args:
        produce: Emits the events, and returns after the last one.
    """

    media_type = "text/event-stream"

    def __init__(self, produce: Callable[[Emit], Awaitable[None]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._produce = produce

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""

        async def emit(text: str) -> None:
            body = text.encode("utf-8", "backslashreplace")
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await emit(": connected\n\n")
            await self._produce(emit)
            await send({"type": "http.response.body", "body": b""})
            tasks.cancel_scope.cancel()


async def stream_changes(request: Request) -> Response:
    """Report the kinds of objects that changed, and when the API or the daemon becomes unreachable or reachable."""
    api: ApiClient = request.app.state.api
    return EventStream(lambda emit: _report_changes(api, emit))


async def _report_changes(api: ApiClient, emit: Emit) -> None:
    known: object = _UNKNOWN
    is_begun = False
    while True:
        try:
            daemon = (await api.get("status"))["pid"]
            if known is not _UNKNOWN and known != daemon:
                await emit("event: back\ndata: \n\n")
            known = daemon
            with anyio.move_on_after(_STORED_S if daemon is None else float("inf")):
                async with api.lines("changes") as lines:
                    async for line in lines:
                        if not is_begun:
                            # The page may have been rendered before a change that came before the first line.
                            is_begun = True
                            await emit("event: changed\ndata: reset\n\n")
                        if line.startswith("event:"):
                            await emit(f"event: changed\ndata: {line.removeprefix('event:').strip()}\n\n")
        except ApiError as exc:
            if exc.status == 503 and known is not _AWAY:
                known = _AWAY
                await emit(f"event: away\ndata: {_AWAY}\n\n")
        await anyio.sleep(_RETRY_S)


async def follow_log(request: Request) -> Response:
    """Send entries of a log as they are written, until the record is sealed."""
    api: ApiClient = request.app.state.api
    noun, name = request.url.path.split("/")[1], request.path_params["id"]
    start = request.headers.get("last-event-id") or request.query_params.get("start", "0")
    kind, attempt = request.query_params.get("show", "all"), request.query_params.get("attempt")

    async def produce(emit: Emit) -> None:
        try:
            async with api.lines(noun, name, "events", follow="true", start=start, attempt=attempt) as lines:
                async for line in lines:
                    if is_of_kind(line, kind):
                        html = render_part("entries", entries=[read_entry(line)])
                        data = "".join(f"data: {part}\n" for part in html.rstrip("\n").split("\n"))
                        await emit(f"event: events\nid: {json.loads(line)['seq'] + 1}\n{data}\n")
        except ApiError:
            return  # the page reconnects and continues after its last entry
        await emit("event: end\ndata: \n\n")

    return EventStream(produce)
