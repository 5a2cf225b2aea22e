"""Limits what the API reads, refuses invalid requests, and renders every error in one form."""

import logging
import traceback
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence.errors import ExitCode, InfrastructureFault, NotFound, RingfenceError, UsageError
from ringfence.fleet.client import NoDaemon
from ringfence.fleet.queries.models import ResponseModel


class Problem(ResponseModel):
    """Why a request is refused."""

    message: str
    exit_code: int
    """The exit code of a command that sent the request."""


class Refusal(ResponseModel):
    """The response to a request that is refused."""

    error: Problem


BODY_BYTES = 8 * 1024 * 1024
"""Size limit of a request: a prompt of a million characters, each written as an escape, and some more."""
_STATUS = {NoDaemon: 503, NotFound: 404, UsageError: 400, InfrastructureFault: 503}
_MAX_SHOWN = 200
_REFUSALS = {
    400: "The request is invalid: a value makes no sense, or the object's state does not permit the operation.",
    401: "Over TCP: no access token, or a wrong or expired one.",
    403: "The token's scope does not suffice, or the request comes from a page of another site.",
    404: "There is no such object.",
    409: "Policy or the configuration refuses the request, the data is on another machine, or what was shown is old.",
    413: "The body is too long.",
    415: "The body is not of the type `application/json`.",
    421: "Over TCP: the name in `Host` is not one of the server's names.",
    422: "A parameter or the body does not fit its schema.",
    429: "Over TCP: too many wrong tokens from this address; `Retry-After` has the seconds to wait.",
    503: "Temporary: no daemon runs, the database cannot be used, or the agent's queue is full.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": text} for status, text in _REFUSALS.items()
}
"""Responses that every operation may send besides its own."""


def guard(app: FastAPI) -> None:
    """Make an application render all errors in one form, and limit what it reads."""
    app.add_exception_handler(RingfenceError, _on_ringfence_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_internal_error)
    app.add_middleware(_LimitedBody)
    app.add_middleware(_JsonOnly)


def known_query(request: Request) -> None:
    """Refuse query parameters that the route does not have, since they would silently have no effect.

    Raises:
        UsageError: The request has such a parameter.
    """
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            there = f"known here: {', '.join(sorted(known))}" if known else "there is none here"
            raise UsageError(f"there is no query parameter {name[:_MAX_SHOWN]!r}; {there}")


def refusal(status: int, message: str, code: int = ExitCode.USAGE) -> Response:
    """Create the response to a request that is refused."""
    body = Refusal(error=Problem(message=message, exit_code=int(code)))
    return JSONResponse(body.model_dump(), status_code=status)


async def _on_ringfence_error(_request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 409)
    code = error.exit_code if isinstance(error, RingfenceError) else ExitCode.FAILED
    return refusal(status, str(error), code)


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    problem = str(first["msg"])[:_MAX_SHOWN]
    if first["type"] == "enum":
        problem = f"{str(first['input'])[:_MAX_SHOWN]!r} is none of {first['ctx']['expected']}"
    return refusal(422, f"{place[:_MAX_SHOWN]}: {problem}")


async def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = refusal(error.status_code, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


async def _on_internal_error(request: Request, error: Exception) -> Response:
    """Log the error with its traceback, and name only its type to the client."""
    line = f"{request.method} {request.url.path[:_MAX_SHOWN]!r}: internal error: {error!r}"
    trace = "".join(traceback.format_exception(error))
    daemon = request.app.state.context.daemon
    if daemon is not None:
        daemon.log(f"{line}\n{trace}", event="api.failed")
    else:
        logging.getLogger(__name__).error("%s\n%s", line, trace)
    name = type(error).__name__
    return refusal(500, f"internal error: {name}; the log of the server has more", ExitCode.INFRASTRUCTURE)


class _JsonOnly:
    """Refuses bodies that are not JSON, because a form on another site can send only other types."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
            if (kind or has_body) and kind != "application/json":
                problem = f"a body of type {kind[:_MAX_SHOWN]!r} is refused; send JSON as application/json"
                await refusal(415, problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _LimitedBody:
    """Refuses bodies that are longer than allowed, without reading the rest."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > BODY_BYTES:
                raise HTTPException(413, f"the body is longer than {BODY_BYTES} bytes")
            return message

        await self._app(scope, bounded, send)
