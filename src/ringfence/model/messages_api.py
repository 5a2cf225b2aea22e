"""Claude through the Messages API: one request, one streamed reply, with deadlines and retries.

Requests go to the run's model gateway in this process, which adds the credential, forwards, counts and records them.
"""

import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

import anyio

from ringfence.egress.gateway.exchange import Response
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.response_reader import verdict_of_body
from ringfence.egress.http.client import UpstreamError
from ringfence.egress.http.rules import Request
from ringfence.errors import (
    AuthenticationFailed,
    InfrastructureFault,
    RequestRefused,
    RingfenceError,
    UsageError,
)
from ringfence.events import Emit, JSONObject, ModelRetried
from ringfence.model.base import API_VERSION, ContextExceeded, Model, ModelReply, ModelRequest
from ringfence.model.failure import Failure, RetryPolicy, classify_failure
from ringfence.model.stream import ApiError, BrokenStream, EventReader, ReplyAssembly

_HEADERS = (
    ("accept", "application/json"),
    ("anthropic-version", API_VERSION),
    ("content-type", "application/json"),
    ("user-agent", "ringfence"),
)
_REASON_LIMIT = 400
_ERROR_BODY_BYTES = 64 * 1024
_DRAIN_S = 0.25


class MessagesModel(Model):
    """A model behind `POST /v1/messages`.

    Args:
        gateway: The open gateway that forwards to the API.
        retries: Deadlines and retries.
        jitter: Returns the random part of waits.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        retries: RetryPolicy | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._gateway = gateway
        self._retries = retries or RetryPolicy()
        self._jitter = jitter

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Answer `request`; see `Model.reply`."""
        body = encode_request(request)
        started = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(body, emit)
            except Exception as exc:
                failure = classify_failure(exc, datetime.now(UTC))
                if failure is None:
                    raise
                wait_s = self._wait_s(failure, attempt, started)
                if wait_s is None:
                    raise self._error(failure, attempt, time.monotonic() - started) from exc
            reason = _one_line(failure.reason)
            await emit(ModelRetried(attempt=attempt, status=failure.status, reason=reason, wait_s=wait_s))
            await anyio.sleep(wait_s)

    async def _attempt(self, body: bytes, emit: Emit) -> ModelReply:
        with anyio.move_on_after(self._retries.reply_s):
            response = await self._send(body)
            try:
                return await self._read(response, emit)
            finally:
                await response.aclose()
        raise BrokenStream(f"the reply took longer than {self._retries.reply_s:g} s")

    async def _send(self, body: bytes) -> Response:
        """Send the request and wait for the head of the response.

        Raises:
            ApiError: The status is an error.
            BrokenStream: The head did not arrive in time.
        """
        request = Request("POST", "/v1/messages", _HEADERS, body)
        with anyio.move_on_after(self._retries.first_byte_s):
            response = await self._gateway.handle(request)
            if response.status < 300:
                return response
            try:
                raise await _read_error(response)
            finally:
                await response.aclose()
        raise BrokenStream(f"the API sent nothing for {self._retries.first_byte_s:g} s")

    async def _read(self, response: Response, emit: Emit) -> ModelReply:
        assembly = ReplyAssembly()
        async with aclosing(self._events(response)) as events:
            async for name, data in events:
                shown = assembly.take(name, data)
                if shown is not None:
                    await emit(shown)
                if assembly.is_complete:
                    await _drain(events)
                    break
        return assembly.finish()

    async def _events(self, response: Response) -> AsyncGenerator[tuple[str, str], None]:
        reader = EventReader()
        limit_s = self._retries.first_byte_s
        async with aclosing(response.body()) as pieces:
            while True:
                with anyio.move_on_after(limit_s) as scope:
                    piece = await anext(pieces, None)
                if scope.cancelled_caught:
                    raise BrokenStream(f"the API sent nothing for {limit_s:g} s")
                if piece is None:
                    return
                for event in reader.feed(piece):
                    yield event
                    limit_s = self._retries.idle_s

    def _wait_s(self, failure: Failure, attempt: int, started: float) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        if failure.kind != "transient" or attempt >= self._retries.attempts:
            return None
        wait_s = self._retries.wait_s(attempt, retry_after_s=failure.retry_after_s, jitter=self._jitter)
        return wait_s if time.monotonic() - started + wait_s <= self._retries.total_s else None

    def _error(self, failure: Failure, attempts: int, elapsed_s: float) -> RingfenceError:
        where = self._gateway.origin("anthropic")
        reason = _one_line(failure.reason)
        if failure.kind == "authentication":
            kind = self._gateway.kinds["anthropic"]
            return AuthenticationFailed(
                f"{where} rejected the {kind} credential ({reason}); provide a valid one"
            )
        if failure.kind == "context":
            return ContextExceeded(f"the conversation is too long for the model ({reason}); shorten it")
        if failure.kind == "refused":
            error = RequestRefused if failure.is_invalid_request else UsageError
            return error(f"{where} rejected the request ({reason}); correct the request or the model's name")
        wait = failure.retry_after_s
        advice = f"try again in {wait:.0f} s" if wait else "try again later"
        return InfrastructureFault(
            f"{where} sent no complete reply in {attempts} attempts and {elapsed_s:.0f} s ({reason}); {advice}"
        )


async def _read_error(response: Response) -> ApiError:
    """Return the error in a response, which may have the API's form or another."""
    raw = bytearray()
    async with aclosing(response.body()) as pieces:
        async for piece in pieces:
            raw += piece
            if len(raw) > _ERROR_BODY_BYTES:
                break
    body = bytes(raw[:_ERROR_BODY_BYTES])
    outcome = verdict_of_body(body)
    message = outcome.message or body.decode("utf-8", "replace") or "no message"
    return ApiError(response.status, outcome.error_type or None, message, response.headers)


async def _drain(events: AsyncIterator[tuple[str, str]]) -> None:
    """Read the rest of the response after a complete reply, so that the connection can be reused. Ignore failures."""
    with anyio.move_on_after(_DRAIN_S), suppress(BrokenStream, UpstreamError):
        async for _ in events:
            pass


def _one_line(reason: str) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= _REASON_LIMIT else text[:_REASON_LIMIT] + "..."


# --- the request

_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "document", "tool_result", "search_result"})
_CACHED_USER_MESSAGES = 2
"""The last two: one writes the cache that the next turn reads. With system and tools that is the API's limit of 4."""


def encode_request(request: ModelRequest) -> bytes:
    """Return the body of `POST /v1/messages`.

    Raises:
        UsageError: The conversation contains text or a number that JSON cannot express.
    """
    try:
        return json.dumps(
            request_body(request), ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"the conversation contains text that is not Unicode: {exc.reason}") from exc
    except ValueError as exc:
        raise UsageError(f"the conversation contains a number that JSON cannot express: {exc}") from exc


def request_body(request: ModelRequest) -> JSONObject:
    """Return the body of `POST /v1/messages` as JSON, with cache breakpoints; the request itself is not changed."""
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
