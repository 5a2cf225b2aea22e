"""Serves the webhook triggers at `/hooks/AGENT/NAME`, on an address that serves nothing else."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import RingfenceError
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.config.model import WebhookTrigger
from ringfence.fleet.log import Log
from ringfence.fleet.secret_placeholders import names_in, with_secrets
from ringfence.fleet.submission import JobRequest, Submission
from ringfence.fleet.trigger.payload import WebhookRefused
from ringfence.fleet.trigger.webhook import (
    LIMIT_BYTES,
    Delivery,
    Headers,
    Style,
    receive,
    refuse_length,
    refuse_unsigned,
)

InboxHook = Callable[[Request], Awaitable[Response | None]]
_SECRET_S = 60.0
_FAILURE_S = 5.0
_LATIN = "latin-1"
_BODY_S = 20.0


class HookSecrets:
    """Reads the secrets of hooks, and keeps each for a minute, or its failure for five seconds.

    Requests whose signature is wrong therefore start the program that prints a secret once a minute at most.

    Args:
        state: The state directory.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._locks = defaultdict[tuple[str, ...], anyio.Lock](anyio.Lock)
        self._kept: dict[tuple[str, ...], tuple[float, str | RingfenceError]] = {}

    async def read(self, text: str, references: Mapping[str, SecretReference]) -> str:
        """Return a text with the values of its secrets.

        Raises:
            AuthenticationFailed, InfrastructureFault: As `with_secrets`.
        """
        key = (text, *(repr(references.get(name)) for name in names_in(text)))
        async with self._locks[key]:
            now = anyio.current_time()
            self._kept = {each: kept for each, kept in self._kept.items() if kept[0] > now}
            if key not in self._kept:
                self._kept[key] = await self._fetch(text, references)
            value = self._kept[key][1]
        if isinstance(value, RingfenceError):
            raise value.with_traceback(None)  # each request would add to the traceback that is kept
        return value

    async def _fetch(
        self, text: str, references: Mapping[str, SecretReference]
    ) -> tuple[float, str | RingfenceError]:
        """Return the value, or the failure, and when it ends."""
        try:
            async with AsyncExitStack() as stack:
                value = await with_secrets(text, stack=stack, references=references, state=self._state)
        except RingfenceError as exc:
            return anyio.current_time() + _FAILURE_S, exc
        return anyio.current_time() + _SECRET_S, value


def webhook_app(
    find: Callable[[str], Agent | None],
    *,
    submit: Callable[[JobRequest], Awaitable[Submission]],
    secrets: HookSecrets,
    log: Log,
    inbox: InboxHook,
) -> Starlette:
    """Create the application.

    Args:
        find: Returns an agent by its name.
        submit: Submits a job.
        secrets: Reads the secrets of signatures.
        log: Logs signed requests that are refused, and secrets that cannot be obtained.
        inbox: Answers the request at `/hooks/inbox/ID`; returns None if the fleet has no such hook.
    """

    async def hook(request: Request) -> Response:
        if request.path_params["agent"] == "inbox":
            answered = await inbox(request)
            if answered is not None:
                return answered
        agent = find(request.path_params["agent"])
        trigger = agent.settings.triggers.get(request.path_params["name"]) if agent is not None else None
        if agent is None or not isinstance(trigger, WebhookTrigger):
            return refuse(404, "there is no such hook")
        try:
            delivery = await read_delivery(
                request,
                trigger.secret,
                trigger.signature,
                references=agent.settings.secrets,
                secrets=secrets,
            )
        except WebhookRefused as exc:
            return refuse(exc.status, str(exc))
        except RingfenceError as exc:
            name = request.path_params["name"]
            log(f"webhook {agent.name}/{name}: {exc}", event="webhook.failed", agent=agent.name, trigger=name)
            return refuse(503, "the hook's secret is not available at the moment")
        except ClientDisconnect:
            return refuse(400, "the connection broke before the body was complete")
        return await _entered(request.path_params["name"], agent, trigger, delivery, submit, log)

    return Starlette(routes=[Route("/hooks/{agent}/{name}", hook, methods=["POST"])])


async def read_delivery(
    request: Request,
    secret: str,
    signature: Style,
    *,
    references: Mapping[str, SecretReference],
    secrets: HookSecrets,
    check: Callable[[], Awaitable[None]] | None = None,
) -> Delivery:
    """Verify a request, and read no more of its body than is allowed.

    Args:
        request: The request.
        secret: The key of its signature, as the configuration names it.
        signature: The style of its signature.
        references: Where secrets come from.
        secrets: Reads the secret.
        check: Called after the cheap checks, before the body and the secret are read; it may raise `WebhookRefused`.

    Raises:
        WebhookRefused: The request is not signed correctly, or is too long.
        AuthenticationFailed, InfrastructureFault: The secret cannot be obtained.
    """
    headers: Headers = [(name.decode(_LATIN), value.decode(_LATIN)) for name, value in request.headers.raw]
    # These checks come first because they cost nothing; for the secret, a program may have to be started.
    refuse_length(headers)
    refuse_unsigned(signature, headers)
    if check is not None:
        await check()
    body = bytearray()
    try:
        with anyio.fail_after(_BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > LIMIT_BYTES:
                    raise WebhookRefused(413, f"the body is longer than {LIMIT_BYTES} bytes")
    except TimeoutError as exc:
        raise WebhookRefused(408, f"the body was not complete after {_BODY_S:g} s") from exc
    key = await secrets.read(secret, references)
    return receive(key.encode(), signature, headers, bytes(body))


async def _entered(
    name: str,
    agent: Agent,
    trigger: WebhookTrigger,
    delivery: Delivery,
    submit: Callable[[JobRequest], Awaitable[Submission]],
    log: Log,
) -> Response:
    # A sender's key is not signed: a recorded request could be replayed under another key.
    key = delivery.signed_hash
    try:
        entered = await submit(
            JobRequest(
                agent,
                "webhook",
                name=name,
                prompt=trigger.prompt,
                priority=trigger.priority,
                payload=delivery.payload,
                dedupe_key=f"webhook/{agent.name}/{name}/{key}",
                overlap=trigger.overlap,
            )
        )
    except RingfenceError as exc:
        log(f"webhook {agent.name}/{name}: {exc}", event="webhook.failed", agent=agent.name, trigger=name)
        return refuse(503, "the job could not be entered; send it again")
    if entered.job is None:
        return JSONResponse({"job": None, "reason": entered.reason})
    return JSONResponse({"job": entered.job.id, "is_new": entered.is_new}, 202 if entered.is_new else 200)


def refuse(status: int, reason: str) -> Response:
    """Create the response to a request that is refused."""
    return JSONResponse({"error": reason}, status)
