"""`POST /hooks/inbox/ID`: a signed request that answers a question, for chat programs and other services."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import PolicyRefused, RingfenceError, UsageError
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.model import InboxSettings
from ringfence.fleet.daemon.webhooks import HookSecrets, InboxHook, read_delivery, refuse
from ringfence.fleet.log import Log
from ringfence.fleet.secret_placeholders import names_in
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.inbox import AlreadyAnswered, Entry, Inbox
from ringfence.fleet.trigger.payload import WebhookRefused
from ringfence.fleet.trigger.webhook import Delivery

_STATUS: Mapping[type[RingfenceError], int] = {AlreadyAnswered: 409, UsageError: 400, PolicyRefused: 403}
"""The status of the response for each error about the answer; a subclass stands before its class."""


class SignedAnswer(BaseModel):
    """The body of a request. It names the question, so that its signature is valid for no other question."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    answer: Literal["allow", "deny"]
    scope: Literal["run", "agent"] = "run"
    reply: Annotated[str, Field(max_length=20_000)] = ""
    by: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]
    """The name of the person, as the sender knows it."""


def inbox_hook(
    fleet: Callable[[], Fleet],
    *,
    database: Database,
    on_answer: Callable[[], None],
    secrets: HookSecrets,
    log: Log,
) -> InboxHook:
    """Create the function that answers a question by a request; it returns None if the fleet has no such hook.

    Args:
        fleet: Returns the present configuration.
        database: The database that holds the questions.
        on_answer: Called after an answer was stored.
        secrets: Reads the secrets of signatures.
        log: Logs signed requests that are refused, and secrets that cannot be obtained.
    """

    async def answer(request: Request) -> Response | None:
        settings = fleet().settings.inbox
        if settings is None:
            return None
        try:
            answered = await _answer(request, fleet(), settings, database, secrets)
        except ClientDisconnect:
            return refuse(400, "the connection broke before the body was complete")
        except RingfenceError as exc:
            return _refused(exc, log)
        on_answer()
        return JSONResponse({"question": answered.id, "answer": answered.answer, "job": answered.job})

    return answer


async def _answer(
    request: Request, fleet: Fleet, settings: InboxSettings, database: Database, secrets: HookSecrets
) -> Entry:
    """Verify a request, and answer the question that it names."""
    inbox = Inbox(database)
    delivery = await read_delivery(
        request,
        settings.secret,
        settings.signature,
        references=_secrets_of(fleet, settings),
        secrets=secrets,
        check=partial(_check_open, inbox, request.path_params["name"]),
    )
    signed = _read_answer(request, delivery)
    by = f"{signed.by} (webhook)"
    return await inbox.answer(signed.question, signed.answer, by=by, scope=signed.scope, reply=signed.reply)


def _refused(error: RingfenceError, log: Log) -> Response:
    if isinstance(error, WebhookRefused):
        return refuse(error.status, str(error))
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return refuse(status, str(error))
    log(f"webhook inbox: {error}", event="webhook.failed")
    return refuse(503, "the answer could not be stored; send it again")


async def _check_open(inbox: Inbox, question: str) -> None:
    """Check that a question waits for an answer.

    Raises:
        WebhookRefused: There is no such question, or it is closed.
        InfrastructureFault: The database cannot be read.
    """
    try:
        found = await inbox.get(question)
    except UsageError as exc:
        raise WebhookRefused(404, "there is no such question") from exc
    if found.answer is not None:
        raise WebhookRefused(409, "the question was already answered or closed")


def _read_answer(request: Request, delivery: Delivery) -> SignedAnswer:
    try:
        signed = SignedAnswer.model_validate(delivery.payload)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise WebhookRefused(400, f"{place}: {first['msg']}") from exc
    if signed.question != request.path_params["name"]:
        raise WebhookRefused(
            400, f"the body answers {signed.question!r}, but the address names another question"
        )
    return signed


def _secrets_of(fleet: Fleet, settings: InboxSettings) -> Mapping[str, SecretReference]:
    """The secret references of the first agent that has all names which the inbox's secret uses."""
    names = set(names_in(settings.secret))
    known = (agent.settings.secrets for agent in fleet.agents.values())
    return next((each for each in known if names <= set(each)), {})
