"""Routes of the inbox: questions that wait for a person."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ringfence.fleet.api.access import ACT, READ, Sender
from ringfence.fleet.api.context import Context, FleetDatabase
from ringfence.fleet.api.models import AnswerRequest, GrantAnswer, InboxAnswer
from ringfence.fleet.queries.inbox import answer_inbox, list_grants, list_inbox, revoke_grant, show_inbox

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
) -> list[InboxAnswer]:
    """Questions of jobs, the newest first."""
    return await list_inbox(database, is_open=is_open, agent=agent, limit=limit)


@router.get("/v1/inbox/{question}", dependencies=[READ])
async def show(question: _Question, database: FleetDatabase) -> InboxAnswer:
    """One question."""
    return await show_inbox(database, question)


@router.post("/v1/inbox/{question}/answer", dependencies=[ACT])
async def answer(
    question: _Question, wanted: AnswerRequest, database: FleetDatabase, context: Context, sender: Sender
) -> InboxAnswer:
    """Answer a question: `allow` lets its job continue with the rule, `deny` ends it. A question takes one answer."""
    answered = await answer_inbox(database, question, wanted, by=sender.name)
    if context.daemon is not None:
        context.daemon.dispatcher.wake()
    return answered


@router.get("/v1/grants", dependencies=[READ])
async def grants(database: FleetDatabase) -> list[GrantAnswer]:
    """The rules that were granted to agents for all their jobs."""
    return await list_grants(database)


@router.delete("/v1/grants/{grant}", dependencies=[ACT])
async def revoke(
    grant: Annotated[str, Path(min_length=1, max_length=100, description="A grant's id.")],
    database: FleetDatabase,
) -> GrantAnswer:
    """Remove a rule that was granted to an agent; its next attempts go without it."""
    return await revoke_grant(database, grant)
