"""Claude through the Messages API, by the official SDK, with retries and deadlines of our own.

The SDK takes about 2 s to import, so it is imported on use; commands begin that early, in a thread.
"""

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ringfence.background_import import import_in_background
from ringfence.errors import (
    AuthenticationFailed,
    InfrastructureFault,
    RequestRefused,
    RingfenceError,
    UsageError,
)
from ringfence.events import ModelRetried
from ringfence.model import SDK_MODULES
from ringfence.model.assembly import BrokenStream, ReplyAssembly
from ringfence.model.base import ContextExceeded, Emit, JSONObject, Model, ModelReply, ModelRequest
from ringfence.model.failure import Failure, failure_of
from ringfence.model.patience import Patience
from ringfence.secret.credentials import Credential

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")
_REASON_LIMIT = 400
_CLOSE_S = 5.0
_DRAIN_S = 0.25


class AnthropicModel(Model):
    """A model behind `POST /v1/messages`.

    Args:
        credential: What proves who asks.
        base_url: Where the API is; None: `ANTHROPIC_BASE_URL`, else the public one. Proxies are taken from
            the environment as the SDK does it, except for a server on this machine's loopback.
        patience: Deadlines and retries.
        jitter: Source of the random part of waits.
        transport: Makes what carries the requests, in place of connections to `base_url`.
    """

    def __init__(
        self,
        credential: Credential,
        *,
        base_url: str | None = None,
        patience: Patience | None = None,
        jitter: Callable[[], float] = random.random,
        transport: "Callable[[], httpx2.AsyncBaseTransport] | None" = None,
    ) -> None:
        self._credential = credential
        self._base_url = base_url
        self._patience = patience or Patience()
        self._jitter = jitter
        self._transport = transport
        self._client: AsyncAnthropic | None = None

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Answer `request`; see `Model.reply`."""
        body = request_body(request)
        client = await self._connected()
        began = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(client, body, emit)
            except Exception as exc:
                failure = failure_of(exc, datetime.now(UTC))
                if failure is None:
                    raise
                wait_s = self._wait_s(failure, attempt, began)
                if wait_s is None:
                    raise self._error(failure, attempt, time.monotonic() - began) from exc
            reason = self._shown(failure)
            await emit(ModelRetried(attempt=attempt, status=failure.status, reason=reason, wait_s=wait_s))
            await anyio.sleep(wait_s)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                await client.close()

    async def _connected(self) -> "AsyncAnthropic":
        if self._client is None:
            await anyio.to_thread.run_sync(import_in_background(*SDK_MODULES).join)
            self._client = self._connect()
        return self._client

    def _connect(self) -> "AsyncAnthropic":
        import anthropic
        import httpx2

        # All credentials travel as our own headers, so the SDK must neither add one nor look for one.
        headers: dict[str, Any] = {"Authorization": anthropic.Omit(), **self._credential.headers()}
        patience = self._patience
        client = anthropic.AsyncAnthropic(
            api_key=self._credential.value,
            base_url=self._base_url,
            default_headers=headers,
            max_retries=0,
            open_telemetry=False,
            timeout=httpx2.Timeout(patience.first_byte_s, connect=patience.connect_s),
            http_client=self._http_client(),
        )
        if client.base_url.scheme not in ("http", "https") or not client.base_url.host:
            raise UsageError(
                f"base URL {self._base_url or str(client.base_url)!r} is not one; "
                "write it like https://host or http://127.0.0.1:8080"
            )
        return client

    def _http_client(self) -> "httpx2.AsyncClient":
        import anthropic

        # A redirect to another host would take the X-Api-Key header along.
        if self._transport is not None:
            return anthropic.DefaultAsyncHttpxClient(
                transport=self._transport(), trust_env=False, follow_redirects=False
            )
        return anthropic.DefaultAsyncHttpxClient(mounts=dict.fromkeys(_LOOPBACK), follow_redirects=False)

    async def _attempt(self, client: "AsyncAnthropic", body: JSONObject, emit: Emit) -> ModelReply:
        with anyio.move_on_after(self._patience.reply_s):
            return await self._stream(client, body, emit)
        raise BrokenStream(f"the reply took longer than {self._patience.reply_s:g} s")

    async def _stream(self, client: "AsyncAnthropic", body: JSONObject, emit: Emit) -> ModelReply:
        import anthropic

        # Not `client.messages`: its helpers rebuild each event and block from models of their own, and what
        # the API sends must come back to it unchanged.
        stream: anthropic.AsyncStream[Any] = await client.post(
            "/v1/messages", body=body, cast_to=object, stream=True, stream_cls=anthropic.AsyncStream[Any]
        )
        assembly = ReplyAssembly()
        async with stream, aclosing(self._events(stream.response)) as events:
            async for name, data in events:
                shown = assembly.take(name, data)
                if shown is not None:
                    await emit(shown)
                if assembly.is_whole:
                    await _drain(events)
                    break
        return assembly.finish()

    async def _events(self, response: "httpx2.Response") -> AsyncGenerator[tuple[str | None, str], None]:
        import anthropic

        decoded = anthropic.AsyncStream.raw_events(response)
        limit_s = self._patience.first_byte_s
        while True:
            event = None
            with anyio.move_on_after(limit_s) as scope:
                try:
                    event = await anext(decoded, None)
                except UnicodeDecodeError as exc:
                    raise BrokenStream(f"the stream is not UTF-8: {exc.reason}") from exc
            if scope.cancelled_caught:
                raise BrokenStream(f"nothing came for {limit_s:g} s")
            if event is None:
                return
            yield event.event, event.data
            limit_s = self._patience.idle_s

    def _wait_s(self, failure: Failure, attempt: int, began: float) -> float | None:
        """Seconds until the next attempt; None if there is to be none."""
        if failure.kind != "transient" or attempt >= self._patience.attempts:
            return None
        wait_s = self._patience.wait_s(attempt, asked_s=failure.retry_after_s, jitter=self._jitter)
        return wait_s if time.monotonic() - began + wait_s <= self._patience.total_s else None

    def _shown(self, failure: Failure) -> str:
        text = " ".join(self._credential.redact(failure.reason).split())
        return text if len(text) <= _REASON_LIMIT else text[:_REASON_LIMIT] + "..."

    def _error(self, failure: Failure, attempts: int, elapsed_s: float) -> RingfenceError:
        where = self._origin()
        reason = self._shown(failure)
        if failure.kind == "authentication":
            return AuthenticationFailed(
                f"{where} refused the {self._credential.kind} credential ({reason}); give one valid there"
            )
        if failure.kind == "context":
            return ContextExceeded(f"the conversation is too long for the model ({reason}); shorten it")
        if failure.kind == "refused":
            kind = RequestRefused if failure.is_final else UsageError
            return kind(f"{where} refused the request ({reason}); mend the request or the model's name")
        asked = failure.retry_after_s
        advice = f"try again in {asked:.0f} s" if asked else "try again later"
        return InfrastructureFault(
            f"{where} gave no reply in {attempts} attempts and {elapsed_s:.0f} s ({reason}); {advice}"
        )

    def _origin(self) -> str:
        """Scheme, host and port: a base URL may hold a password."""
        if self._client is None:
            return "the model"
        url = self._client.base_url
        return f"{url.scheme}://{url.netloc.decode('ascii').rpartition('@')[2]}"


async def _drain(events: AsyncIterator[tuple[str | None, str]]) -> None:
    """Read what follows a whole reply, so that the connection can be used again; failures do not matter."""
    import httpx2

    with anyio.move_on_after(_DRAIN_S), suppress(BrokenStream, httpx2.HTTPError, httpx2.StreamError):
        async for _ in events:
            pass


_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "document", "tool_result", "search_result"})
_CACHED_USER_MESSAGES = 2
"""The last two: one writes what the next turn reads. With system and tools that is the API's limit of 4."""


def request_body(request: ModelRequest) -> JSONObject:
    """The body of `POST /v1/messages`, with cache breakpoints and `stream`. The request itself is not changed."""
    body: JSONObject = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": _with_breakpoints(request.messages),
        "stream": True,
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
    if request.tools:
        body["tools"] = [*request.tools[:-1], {**request.tools[-1], "cache_control": _EPHEMERAL}]
    return body


def _with_breakpoints(messages: Sequence[JSONObject]) -> list[JSONObject]:
    marked = list(messages)
    users = [index for index, message in enumerate(marked) if message["role"] == "user"]
    for index in users[-_CACHED_USER_MESSAGES:]:
        marked[index] = {**marked[index], "content": _marked(marked[index]["content"])}
    return marked


def _marked(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content, "cache_control": _EPHEMERAL}] if content else content
    last = content[-1] if content else {}
    if last.get("type") not in _CACHEABLE or (last["type"] == "text" and not last["text"]):
        return content
    return [*content[:-1], {**last, "cache_control": _EPHEMERAL}]
