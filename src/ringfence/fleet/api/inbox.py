"""Routes of the inbox: questions that wait for a person."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ringfence.fleet.api.access import ACT, READ, Sender
from ringfence.fleet.api.context import Context, FleetDatabase
from ringfence.fleet.api.requests import AnswerRequest
from ringfence.fleet.queries.models import GrantResponse, InboxResponse
from ringfence.fleet.store.grants import Grants
from ringfence.fleet.store.inbox import Inbox

router = APIRouter(tags=["inbox"])
_MAX_LISTED = 1000
_Question = Annotated[str, Path(min_length=1, max_length=100, description="A question's id.")]


@router.get("/v1/inbox", dependencies=[READ])
async def questions(
    database: FleetDatabase,
    is_open: Annotated[
        bool | None, Query(alias="open", description="Only those without an answer, or only the others.")
    ] = None,
    agent: str | None = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 50,
) -> list[InboxResponse]:
    """Questions of jobs, the newest first."""
    found = await Inbox(database).list(is_open=is_open, agent=agent, limit=limit)
    return [InboxResponse.model_validate(each) for each in found]


@router.get("/v1/inbox/{question}", dependencies=[READ])
async def show(question: _Question, database: FleetDatabase) -> InboxResponse:
    """One question."""
    return InboxResponse.model_validate(await Inbox(database).get(question))


@router.post("/v1/inbox/{question}/answer", dependencies=[ACT])
async def answer(
    question: _Question, wanted: AnswerRequest, database: FleetDatabase, context: Context, sender: Sender
) -> InboxResponse:
    """Answer a question: `allow` lets its job continue with the rule, `deny` ends it. A question takes one answer."""
    answered = await Inbox(database).answer(
        question, wanted.answer, by=sender.name, scope=wanted.scope, reply=wanted.reply, seen=wanted.rule
    )
    if context.daemon is not None:
        context.daemon.dispatcher.wake()
    return InboxResponse.model_validate(answered)


@router.get("/v1/grants", dependencies=[READ])
async def grants(database: FleetDatabase) -> list[GrantResponse]:
    """The rules that were granted to agents for all their jobs."""
    return [GrantResponse.model_validate(each) for each in await Grants(database).of_agents()]


@router.delete("/v1/grants/{grant}", dependencies=[ACT])
async def revoke(
    grant: Annotated[str, Path(min_length=1, max_length=100, description="A grant's id.")],
    database: FleetDatabase,
) -> GrantResponse:
    """Remove a rule that was granted to an agent; its next attempts go without it."""
    return GrantResponse.model_validate(await Grants(database).revoke(grant))
