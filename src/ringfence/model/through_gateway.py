"""Claude for the agent's own loop, through the model gateway: the SDK holds a dummy, the gateway the credential."""

import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from ringfence.background_import import import_in_background
from ringfence.egress.gateway import upstream
from ringfence.egress.gateway.answer import Answer
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provided import DUMMIES
from ringfence.egress.gateway.upstream import UpstreamGone
from ringfence.egress.reading import Asked
from ringfence.model import SDK_MODULES
from ringfence.model.anthropic import AnthropicModel
from ringfence.model.patience import Patience
from ringfence.secret.credentials import Credential

if TYPE_CHECKING:
    import httpx2


def model_through(
    gateway: Gateway, *, patience: Patience | None = None, jitter: Callable[[], float] = random.random
) -> AnthropicModel:
    """A model whose requests go through `gateway`, which is open; within this process, without a socket.

    Args:
        gateway: Asks the real API.
        patience: Deadlines and retries.
        jitter: Source of the random part of waits.
    """
    import_in_background(*SDK_MODULES)
    upstream.warm_up()
    kind = gateway.kinds["anthropic"]
    base_url = gateway.base_url("anthropic")

    def transport() -> "httpx2.AsyncBaseTransport":
        return _transport_class()(gateway, urlsplit(base_url).path.rstrip("/"))

    dummy = Credential(kind, DUMMIES["anthropic", kind][1])
    return AnthropicModel(dummy, base_url=base_url, patience=patience, jitter=jitter, transport=transport)


def _transport_class() -> "Callable[[Gateway, str], httpx2.AsyncBaseTransport]":
    """Made on use, as its base takes long to import."""
    import httpx2

    class _Body(httpx2.AsyncByteStream):
        def __init__(self, answer: Answer, request: httpx2.Request) -> None:
            self._answer = answer
            self._request = request

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for piece in self._answer.pieces():
                    yield piece
            except UpstreamGone as exc:
                raise httpx2.ReadError(str(exc), request=self._request) from exc

        async def aclose(self) -> None:
            await self._answer.aclose()

    class GatewayTransport(httpx2.AsyncBaseTransport):
        def __init__(self, gateway: Gateway, prefix: str) -> None:
            self._gateway = gateway
            self._prefix = prefix

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            asked = Asked(
                request.method,
                request.url.raw_path.decode("ascii").removeprefix(self._prefix),
                await request.aread(),
                wants_upgrade=False,
                headers=tuple((name.lower(), value) for name, value in request.headers.multi_items()),
            )
            limit_s = request.extensions.get("timeout", {}).get("read")
            try:
                with anyio.fail_after(limit_s):
                    answer = await self._gateway.answer(asked)
            except TimeoutError as exc:
                raise httpx2.ReadTimeout(f"no answer within {limit_s:g} s", request=request) from exc
            return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer, request))

    return GatewayTransport
