"""`POST /hooks/inbox/ID`: a signed request that answers a question, for chat programs and other services."""

from collections.abc import Callable, Mapping
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
from ringfence.fleet.store.inbox import AlreadyAnswered, Inbox
from ringfence.fleet.trigger.payload import WebhookRefused
from ringfence.fleet.trigger.webhook import Delivery


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

        async def check() -> None:
            await _check_open(Inbox(database), request.path_params["name"])

        try:
            delivery = await read_delivery(
                request,
                settings.secret,
                settings.signature,
                references=_secrets_of(fleet(), settings),
                secrets=secrets,
                check=check,
            )
            signed = _read_answer(request, delivery)
            answered = await Inbox(database).answer(
                signed.question,
                signed.answer,
                by=f"{signed.by} (webhook)",
                scope=signed.scope,
                reply=signed.reply,
            )
        except WebhookRefused as exc:
            return refuse(exc.status, str(exc))
        except ClientDisconnect:
            return refuse(400, "the connection broke before the body was complete")
        except AlreadyAnswered as exc:
            return refuse(409, str(exc))
        except UsageError as exc:
            return refuse(400, str(exc))
        except PolicyRefused as exc:
            return refuse(403, str(exc))
        except RingfenceError as exc:
            log(f"webhook inbox: {exc}", event="webhook.failed")
            return refuse(
                503,
                "the answer can be neither checked nor stored now; the fleet's log says why; send it again later",
            )
        on_answer()
        return JSONResponse({"question": answered.id, "answer": answered.answer, "job": answered.job})

    return answer


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
