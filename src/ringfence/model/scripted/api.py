"""The scripted model: answers HTTP requests by a script.

`ringfence.testing.scripted_model` serves it over HTTP; in a run the model gateway calls it in the same process.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio

from ringfence.errors import ConfigurationError
from ringfence.events import JSONObject
from ringfence.frozen import frozen
from ringfence.model.scripted.chat import CHAT
from ringfence.model.scripted.dialect import (
    SHELLS,
    Dialect,
    ParsedRequest,
    Refusal,
    Reply,
    choose_shell,
    encode,
    estimate_tokens,
    missing_result,
    unmet_expectation,
)
from ringfence.model.scripted.messages import MESSAGES
from ringfence.model.scripted.progress import CarriedScripts, Cases, Due, LineProgress, Progress
from ringfence.model.scripted.responses import RESPONSES
from ringfence.model.scripted.script import (
    Drop,
    ErrorAnswer,
    Fault,
    Malformed,
    Script,
    Slow,
    Stall,
    StreamError,
)

REQUEST_LIMIT_BYTES: Final = 64 * 1024**2

_DIALECTS: Final = (MESSAGES, RESPONSES, CHAT)
_CONVERSATION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "thread-id")
"""Headers by which the agent CLIs name their conversation."""
_NO_SCRIPT = (
    "the prompt carries no script and the server has none of its own; "
    "put one between <scripted-model> and </scripted-model>"
)
_NOT_JSON = '{"id":'
_MESSAGES_MODEL = {
    "type": "model",
    "id": "scripted",
    "display_name": "Scripted",
    "created_at": "2026-01-01T00:00:00Z",
}
_MESSAGES_MODELS = {
    "data": [_MESSAGES_MODEL],
    "has_more": False,
    "first_id": "scripted",
    "last_id": "scripted",
}
_OPENAI_MODEL = {"id": "scripted", "object": "model", "created": 1_767_225_600, "owned_by": "ringfence"}
_OPENAI_MODELS = {"object": "list", "data": [_OPENAI_MODEL]}


@frozen
class RecordedRequest:
    """A request as it was received."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """The body's JSON; None if it has none."""


class ConnectionDropped(Exception):
    """The script closes the connection at this point."""


@frozen
class ScriptedResponse:
    """An answer, complete or damaged by a fault of the script."""

    status: int
    headers: Mapping[str, str]
    steps: tuple[bytes | float, ...]
    """Bytes to send, or seconds to wait."""
    progress: Progress | None = None
    """Notified just before the last bytes of a reply that the client can use; None for any other answer."""
    is_dropped: bool = False
    """Whether the connection is closed without an end."""
    slow: Slow | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in the pieces and at the times at which it is to be sent.

        Raises:
            ConnectionDropped: At the end, if the connection is to be closed.
        """
        steps = list(self._cut())
        for number, step in enumerate(steps, start=1):
            if isinstance(step, float):
                await anyio.sleep(step)
                continue
            if number == len(steps) and self.progress is not None:
                self.progress.reply_sent()
            yield step
        if self.is_dropped:
            raise ConnectionDropped("it closed the connection in the middle")

    def _cut(self) -> Iterator[bytes | float]:
        for step in self.steps:
            if isinstance(step, float) or self.slow is None:
                yield step
                continue
            for at in range(0, len(step), self.slow.chunk_bytes):
                if at:
                    yield float(self.slow.delay_s)
                yield step[at : at + self.slow.chunk_bytes]


class ScriptedApi:
    """Answers requests by a script.

    Args:
        script: The script for requests whose prompt carries none; None: those requests are refused.
        named: The scripts that a prompt may name.
    """

    def __init__(self, script: Script | None = None, named: Mapping[str, Script] | None = None) -> None:
        self._line = LineProgress(script) if script is not None and script.turns else None
        self._cases = Cases(script) if script is not None and script.cases else None
        self._carried = CarriedScripts(named or {})
        self._one_at_a_time = anyio.Semaphore(1)
        self._count = 0

    @property
    def turns_done(self) -> int:
        """The number of turns of its own script that are over; 0 if that has cases."""
        return self._line.turn_index if self._line is not None else 0

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, headers: Mapping[str, str], raw: bytes
    ) -> AsyncIterator[ScriptedResponse]:
        """Yield the answer to one request, which is sent while the context is open.

        Its own script is one line of turns for all clients, so the context waits until the request before it was
        answered. A script in a prompt, and a case for each conversation, are lines of their own.

        Args:
            method: The method of the request.
            path: The path without the query.
            headers: The headers with names in lower case.
            raw: The body.
        """
        dialect = _dialect_of(path, headers)
        body = parse_json(raw)
        refusal = self._refusal(dialect, method, path, headers, raw, body)
        if refusal is not None:
            yield self._error(dialect, refusal)
        elif path == "/v1/models":
            yield self._json(_MESSAGES_MODELS if dialect is MESSAGES else _OPENAI_MODELS, dialect)
        elif path == _COUNT_TOKENS:
            yield self._json({"input_tokens": estimate_tokens(body)}, dialect)
        else:
            conversation = next(filter(None, map(headers.get, _CONVERSATION_HEADERS)), "")
            async with self._due_reply(dialect, body, conversation) as response:
                yield response

    def _refusal(
        self, dialect: Dialect, method: str, path: str, headers: Mapping[str, str], raw: bytes, body: Any
    ) -> Refusal | None:
        """Return why the API would refuse the request; None if it would not."""
        if not (headers.get("x-api-key") or headers.get("authorization")):
            wanted = "x-api-key" if dialect is MESSAGES else "authorization"
            return Refusal(401, f"{wanted} header is required")
        if _METHODS.get(path) != method:
            if "upgrade" in headers:  # codex tries a WebSocket first, and accepts only 426 as a no
                return Refusal(426, "WebSockets are not supported; use plain HTTP")
            return Refusal(404, f"Not found: {method} {path}")
        if method == "GET":
            return None
        if len(raw) > REQUEST_LIMIT_BYTES:
            return Refusal(413, "Request exceeds the maximum size")
        has_default = path == _COUNT_TOKENS and isinstance(body, dict)
        return dialect.check({"max_tokens": 1, **body} if has_default else body)

    @asynccontextmanager
    async def _due_reply(
        self, dialect: Dialect, body: JSONObject, conversation: str
    ) -> AsyncIterator[ScriptedResponse]:
        request = dialect.parse(body)
        try:
            progress = self._progress_of(request, conversation)
        except ConfigurationError as exc:
            yield self._error(dialect, Refusal(400, str(exc)))
            return
        if progress is not None:
            yield self._due(dialect, request, progress)
        elif self._line is not None:
            async with self._one_at_a_time:
                yield self._due(dialect, request, self._line)
        else:
            yield self._error(dialect, Refusal(400, _NO_SCRIPT))

    def _progress_of(self, request: ParsedRequest, conversation: str) -> Progress | None:
        carried = self._carried.find(request, conversation)
        if carried is None and self._cases is not None:
            return self._cases.find(request, conversation)
        return carried

    def _due(self, dialect: Dialect, request: ParsedRequest, progress: Progress) -> ScriptedResponse:
        script, due = progress.script, progress.due()
        if due is None:
            return self._error(dialect, Refusal(400, _exhausted(script)))
        problem = _problem(due, request)
        if problem:
            return self._error(dialect, Refusal(400, f"{script.source.place(due.turn_index)}: {problem}"))
        if due.fault is not None:
            progress.fault_happened(due)
        if isinstance(due.fault, ErrorAnswer):
            return self._scripted_error(dialect, due.fault)
        reply, is_streamed = dialect.reply(due.turn, request, due.stem), bool(request.body.get("stream"))
        headers, steps = (_streamed if is_streamed else _complete)(dialect, reply, due.fault)
        ids = {dialect.request_id_header: self._request_id(), "cache-control": "no-cache"}
        is_cut = isinstance(due.fault, Drop) or (isinstance(due.fault, StreamError) and not is_streamed)
        is_usable = due.fault is None or isinstance(due.fault, Stall)
        return ScriptedResponse(
            200,
            {**ids, **headers},
            steps,
            progress=progress if is_usable else None,
            is_dropped=is_cut,
            slow=due.turn.slow,
        )

    def _scripted_error(self, dialect: Dialect, error: ErrorAnswer) -> ScriptedResponse:
        response = self._error(dialect, Refusal(error.status, error.message, error.type))
        headers = dict(response.headers)
        if error.retry_after is not None:
            headers["retry-after"] = f"{error.retry_after}"
        if error.retry_after_ms is not None:
            headers["retry-after-ms"] = f"{error.retry_after_ms:g}"
        return replace(response, headers={**headers, **error.headers})

    def _error(self, dialect: Dialect, refusal: Refusal) -> ScriptedResponse:
        request_id = self._request_id()
        return self._json(dialect.error_body(refusal, request_id), dialect, refusal.status, request_id)

    def _json(
        self, value: JSONObject, dialect: Dialect, status: int = 200, request_id: str = ""
    ) -> ScriptedResponse:
        headers = {dialect.request_id_header: request_id or self._request_id()}
        body = encode(value)
        return ScriptedResponse(status, {**headers, **_json_headers(body)}, (body,))

    def _request_id(self) -> str:
        self._count += 1
        return f"req_scripted_{self._count:04d}"


_COUNT_TOKENS: Final = "/v1/messages/count_tokens"
_METHODS: Final = {
    **{dialect.path: "POST" for dialect in _DIALECTS},
    _COUNT_TOKENS: "POST",
    "/v1/models": "GET",
}


def parse_json(raw: bytes) -> Any:
    """Return the JSON of a body; None if it has none."""
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


def _dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """Return the API by the path, else by the header that has the client's key."""
    for dialect in _DIALECTS:
        if path.startswith(dialect.path):
            return dialect
    is_messages = "x-api-key" in headers or "anthropic-version" in headers
    return MESSAGES if is_messages or "authorization" not in headers else CHAT


def _exhausted(script: Script) -> str:
    path, _, case_lines = script.source
    case = f" (its case in line {case_lines[0]})" if case_lines else ""
    return f"the script {str(path)!r}{case} is exhausted after turn {len(script.turns)}"


def _problem(due: Due, request: ParsedRequest) -> str | None:
    problem = unmet_expectation(due.turn.expect, request) if due.turn.expect else None
    problem = problem or missing_result(due.turn, request)
    if problem is None and any(call.run for call in due.turn.tools) and choose_shell(request.tools) is None:
        return (
            f"run needs one of the tools {', '.join(SHELLS)}, and the request offers {list(request.tools)!r}"
        )
    return problem


# --- the bytes of an answer

_Answer = tuple[Mapping[str, str], tuple[bytes | float, ...]]
"""Headers, and bytes to send or seconds to wait."""


def _streamed(dialect: Dialect, reply: Reply, fault: Fault | None) -> _Answer:
    """Return a stream of events, damaged by the fault."""
    body = dialect.reply_body(reply)
    frames = tuple(dialect.frames(body, reply))
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    match fault:
        case Stall(after_events=at, seconds=seconds):
            return headers, (*frames[:at], seconds, *frames[at:])
        case Drop(after_events=int(at)):
            return headers, frames[:at]
        case Drop(after_bytes=at):
            return headers, (b"".join(frames)[:at],)
        case Malformed(after_events=at) | StreamError(after_events=at):
            kept = frames[:at]
            return headers, (*kept, dialect.broken_frame(fault, body, len(kept)))
    return headers, frames


def _complete(dialect: Dialect, reply: Reply, fault: Fault | None) -> _Answer:
    """Return an answer in one piece, damaged by the fault; `stream_error` drops it at the start."""
    body = encode(dialect.reply_body(reply))
    headers = _json_headers(body)
    match fault:
        case Stall(seconds=seconds):
            return headers, (seconds, body)
        case Malformed(data=data):
            body = (_NOT_JSON if data is None else data).encode()
            return _json_headers(body), (body,)
        case Drop(after_bytes=at):
            return headers, (body[: len(body) // 2 if at is None else at],)
        case StreamError():
            return headers, ()
    return headers, (body,)


def _json_headers(body: bytes) -> dict[str, str]:
    return {"content-type": "application/json", "content-length": str(len(body))}
