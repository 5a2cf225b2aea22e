"""Reads and answers the questions of jobs that wait for a person."""

from ringfence.fleet.api.models import AnswerRequest, GrantAnswer, InboxAnswer
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.grants import AgentGrant, Grants
from ringfence.fleet.store.inbox import Entry, Inbox


async def list_inbox(
    database: Database, *, is_open: bool | None = None, agent: str | None = None, limit: int = 50
) -> list[InboxAnswer]:
    """Questions, newest first.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    found = await Inbox(database).list(is_open=is_open, agent=agent, limit=limit)
    return [*map(_answer, found)]


async def show_inbox(database: Database, entry_id: str) -> InboxAnswer:
    """One question.

    Raises:
        UsageError: There is no such question.
        InfrastructureFault: The database cannot be read.
    """
    return _answer(await Inbox(database).get(entry_id))


async def answer_inbox(database: Database, entry_id: str, wanted: AnswerRequest, *, by: str) -> InboxAnswer:
    """Answer a question.

    Raises:
        AlreadyAnswered, UsageError, PolicyRefused: As `Inbox.answer`.
        InfrastructureFault: The database cannot be written.
    """
    answered = await Inbox(database).answer(
        entry_id, wanted.answer, by=by, scope=wanted.scope, reply=wanted.reply, seen=wanted.rule
    )
    return _answer(answered)


async def list_grants(database: Database) -> list[GrantAnswer]:
    """The rules that were granted to agents for all their jobs.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    return [*map(_grant_answer, await Grants(database).of_agents())]


async def revoke_grant(database: Database, grant_id: str) -> GrantAnswer:
    """Remove a rule that an agent was granted.

    Raises:
        UsageError: There is no such grant.
        InfrastructureFault: The database cannot be written.
    """
    return _grant_answer(await Grants(database).revoke(grant_id))


def _grant_answer(grant: AgentGrant) -> GrantAnswer:
    return GrantAnswer(
        id=grant.id,
        agent=grant.agent,
        kind=grant.kind,
        rule=dict(grant.rule),
        granted_by=grant.granted_by,
        granted_at=grant.granted_at,
    )


def _answer(entry: Entry) -> InboxAnswer:
    return InboxAnswer(
        id=entry.id,
        job=entry.job,
        agent=entry.agent,
        attempt=entry.attempt,
        run_id=entry.run_id,
        kind=entry.kind,
        rule=dict(entry.rule),
        asks=entry.asks,
        text=entry.text,
        created_at=entry.created_at,
        deadline=entry.deadline,
        answer=entry.answer,
        scope=entry.scope,
        reply=entry.reply,
        answered_by=entry.answered_by,
        answered_at=entry.answered_at,
    )
