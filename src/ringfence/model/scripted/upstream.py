"""The scripted model as an upstream of the model gateway, in the same process, without a server."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.egress.gateway.upstream import Upstream, UpstreamRequest, UpstreamResponse
from ringfence.egress.http.client import UpstreamError
from ringfence.model.scripted.api import ConnectionDropped, ScriptedApi, ScriptedResponse
from ringfence.model.scripted.loader import load_script


class ScriptedUpstream(Upstream):
    """All APIs of one script, whose turns they share.

    Args:
        path: The script; it begins with its first turn each time the gateway opens.
    """

    origin = "the scripted model"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._api: ScriptedApi | None = None
        self._loading = anyio.Lock()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """See `Upstream`."""
        api = await self._opened()
        path = request.path.partition("?")[0]
        path = path if path.startswith("/v1/") else f"/v1{path}"  # OpenAI's base URL ends in /v1
        headers = {name.lower(): value for name, value in request.headers.items()}
        async with AsyncExitStack() as stack:
            response = await stack.enter_async_context(
                api.answer(request.method, path, headers, request.body)
            )
            if not (200 <= response.status < 300 or response.status >= 400):
                raise UpstreamError(
                    f"the scripted model answers with {response.status}, which is not forwarded",
                    is_final=True,
                )
            return _InProcessResponse(response, stack.pop_all())

    async def aclose(self) -> None:
        """See `Upstream`. Several providers can share one upstream."""
        self._api = None

    async def _opened(self) -> ScriptedApi:
        async with self._loading:
            if self._api is None:
                self._api = ScriptedApi(await anyio.to_thread.run_sync(load_script, self._path))
            return self._api


class _InProcessResponse:
    """The response to one request; the request's turn ends when it is closed."""

    def __init__(self, response: ScriptedResponse, stack: AsyncExitStack) -> None:
        self.status = response.status
        self.headers = tuple(response.headers.items())
        self._response = response
        self._stack = stack

    async def body(self) -> AsyncGenerator[bytes, None]:
        """See `UpstreamResponse`."""
        try:
            async for piece in self._response.pieces():
                yield piece
        except ConnectionDropped as exc:
            raise UpstreamError(f"the scripted model broke off: {exc}") from exc

    async def aclose(self) -> None:
        """See `UpstreamResponse`."""
        await self._stack.aclose()
