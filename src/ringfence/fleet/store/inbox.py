"""Stores questions of jobs to a person: added when an attempt ends, answered once, closed at their deadline.

An answer and its effect on the job are one transaction: the job is queued again with the granted rule, or it ends.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, insert, select, update

from ringfence.errors import NotFound, PolicyRefused, UsageError
from ringfence.events import JSONObject, QuestionAnswered
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.grants import add_agent_grant_in, add_job_grant_in
from ringfence.fleet.store.job import milliseconds, moment, reason_of, storable
from ringfence.fleet.store.jobs import get_in, now_ms
from ringfence.fleet.store.tables import INBOX, JOBS
from ringfence.job.question import Question, read_rule
from ringfence.job.state import JobState

Decision = Literal["allow", "deny"]
GrantScope = Literal["run", "agent"]
"""`run`: the job that asked, with all its later attempts. `agent`: also all later jobs of its agent."""
MAX_REPLY_CHARS = 20_000
_MAX_LISTED = 1000
_MAX_EXPIRED = 100


class AlreadyAnswered(UsageError):
    """The question was already answered or closed."""


@dataclass(frozen=True)
class Entry:
    """A question in the inbox."""

    id: str
    job: str
    agent: str
    attempt: int
    run_id: str
    """The run that asked."""
    kind: str
    """`host`, `tool`, `budget` or `question`."""
    rule: JSONObject
    """The fields of the rule that an answer would grant; empty for a question of the agent's own."""
    text: str
    """The agent's own text: for display only; no decision depends on it."""
    created_at: datetime
    deadline: datetime | None
    """When the question is closed without an answer."""
    answer: str | None
    """`allow`, `deny`, `expired`, or `withdrawn` if its job ended; None: the question is open."""
    scope: str | None
    reply: str
    answered_by: str | None
    answered_at: datetime | None

    @property
    def asks(self) -> str:
        """The request of the question, in a text made from its rule, not by the agent."""
        try:
            rule = read_rule(self.kind, self.rule)
        except PolicyRefused:
            return "for something that no answer can grant"
        return "for an answer to its question" if rule is None else f"to {rule}"


def add_question_in(
    connection: Connection, job: str, agent: str, attempt: int, run_id: str, question: "AskedQuestion"
) -> None:
    """Add a question, within the transaction that ends its attempt."""
    now = datetime.now(UTC)
    connection.execute(
        insert(INBOX).values(
            id=f"q{secrets.token_hex(5)}",
            job=job,
            agent=agent,
            attempt=attempt,
            run_id=run_id,
            kind=question.question.kind,
            rule=json.dumps(question.question.rule, sort_keys=True),
            text=storable(question.question.text),
            created_ms=milliseconds(now),
            deadline_ms=milliseconds(now + timedelta(seconds=question.deadline_s)),
        )
    )


@dataclass(frozen=True)
class AskedQuestion:
    """A question with which an attempt ended."""

    question: Question
    deadline_s: float
    """Seconds until the question is closed."""


class Inbox:
    """The questions in a database. Safe to use from several processes and machines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, *, is_open: bool | None = None, agent: str | None = None, limit: int = 50
    ) -> list[Entry]:
        """Questions, newest first.

        Args:
            is_open: True: only open questions; False: only closed ones; None: all.
            agent: Only questions of this agent.
            limit: The maximum number of questions, up to 1,000.
        """
        query = select(INBOX).order_by(INBOX.c.created_ms.desc(), INBOX.c.id).limit(min(limit, _MAX_LISTED))
        if is_open is not None:
            query = query.where(INBOX.c.answer.is_(None) if is_open else INBOX.c.answer.is_not(None))
        if agent is not None:
            query = query.where(INBOX.c.agent == agent)
        return await self._database.read(
            lambda connection: [*map(_entry, connection.execute(query).mappings())]
        )

    async def open_of(self, job_id: str) -> Entry | None:
        """The open question of a job; None if there is none."""
        query = select(INBOX).where(INBOX.c.job == job_id, INBOX.c.answer.is_(None)).limit(1)
        row = await self._database.read(lambda connection: connection.execute(query).mappings().first())
        return None if row is None else _entry(row)

    async def unfinished_jobs(self) -> frozenset[str]:
        """The jobs that asked a question and have not ended: their work so far is kept for their next attempt."""
        live = [state.value for state in JobState if not state.is_terminal]
        query = select(INBOX.c.job).join(JOBS, JOBS.c.id == INBOX.c.job).where(JOBS.c.state.in_(live))
        return await self._database.read(lambda connection: frozenset(connection.execute(query).scalars()))

    async def get(self, entry_id: str) -> Entry:
        """One question.

        Raises:
            NotFound: There is none.
        """
        return await self._database.read(lambda connection: _get_in(connection, entry_id))

    async def answer(
        self,
        entry_id: str,
        decision: Decision,
        *,
        by: str,
        scope: GrantScope = "run",
        reply: str = "",
        seen: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Answer a question: `allow` lets its job continue, `deny` ends it.

        Args:
            entry_id: The question.
            decision: The answer.
            by: The name of the person.
            scope: The scope of the granted rule.
            reply: A message to the agent.
            seen: The rule that the person saw; None: not known.

        Raises:
            AlreadyAnswered: The question was already answered or closed.
            NotFound: There is no such question.
            UsageError: The answer lacks a required reply, or its scope does not fit.
            PolicyRefused: The question's rule cannot be granted, or is not the one that the person saw.
        """
        if len(reply) > MAX_REPLY_CHARS:
            raise UsageError(f"the reply is longer than {MAX_REPLY_CHARS} characters; shorten it")

        def act(connection: Connection) -> Entry:
            entry = _lock(connection, entry_id)
            if seen is not None and dict(seen) != dict(entry.rule):
                raise PolicyRefused(
                    f"question {entry.id!r} requests another rule than the one that was shown; load it again",
                    rule="question-shown",
                )
            if decision == "deny":
                _close_in(connection, entry.id, "deny", by=by, reply=reply)
                _end_waiting_in(connection, entry.job, f"denied by {by}")
            else:
                _check_allowed(entry, scope, reply)
                _close_in(connection, entry.id, "allow", by=by, scope=scope, reply=reply)
                _continue_in(connection, entry, by=by, scope=scope, reply=storable(reply))
            return _get_in(connection, entry.id)

        return await self._database.write(act)

    async def expire(self, now: datetime) -> Sequence[str]:
        """Close the questions whose deadline has passed; their jobs end `blocked`. Return the ids of these jobs."""
        query = (
            select(INBOX.c.id)
            .where(INBOX.c.answer.is_(None), INBOX.c.deadline_ms <= milliseconds(now))
            .limit(_MAX_EXPIRED)
        )
        found = await self._database.read(lambda connection: connection.execute(query).scalars().all())

        def act(connection: Connection) -> Sequence[str]:
            ended = []
            for entry_id in found:
                try:
                    entry = _lock(connection, entry_id)
                except AlreadyAnswered:
                    continue
                _close_in(connection, entry.id, "expired", by=None)
                _end_waiting_in(connection, entry.job, f"{entry.id} was not answered by its deadline")
                ended.append(entry.job)
            return ended

        return await self._database.write(act) if found else ()


def _check_allowed(entry: Entry, scope: GrantScope, reply: str) -> None:
    if read_rule(entry.kind, entry.rule) is not None:
        return
    if scope == "agent":
        raise UsageError("the agent's own question asks for no rule; answer it for the run alone")
    if not reply.strip():
        raise UsageError(
            "the agent's own question needs a reply; write one (`reply`, on the command line `--reply TEXT`)"
        )


def _lock(connection: Connection, entry_id: str) -> Entry:
    """Lock an open question until the end of the transaction; its job is locked first.

    Raises:
        AlreadyAnswered: The question is not open, or its job no longer waits.
    """
    entry = _get_in(connection, entry_id)
    job = get_in(connection, entry.job, to_change=True)
    row = connection.execute(select(INBOX).where(INBOX.c.id == entry_id).with_for_update()).mappings().one()
    entry = _entry(row)
    if entry.answer is not None:
        what = {"allow": "allowed", "deny": "denied"}.get(entry.answer, entry.answer)
        by = f" by {entry.answered_by}" if entry.answered_by else ""
        at = f" at {entry.answered_at:%Y-%m-%d %H:%M:%S} UTC" if entry.answered_at else ""
        raise AlreadyAnswered(f"question {entry.id!r} was {what}{by}{at}; it takes one answer")
    if job is None or job.state is not JobState.WAITING:
        raise AlreadyAnswered(f"job {entry.job!r} does not wait for question {entry.id!r} any more")
    return entry


def _get_in(connection: Connection, entry_id: str) -> Entry:
    row = connection.execute(select(INBOX).where(INBOX.c.id == entry_id)).mappings().first()
    if row is None:
        raise NotFound(f"there is no question {entry_id!r}; `ringfence inbox` lists them")
    return _entry(row)


def _close_in(
    connection: Connection,
    entry_id: str,
    answer: str,
    *,
    by: str | None,
    scope: str | None = None,
    reply: str = "",
) -> None:
    connection.execute(
        update(INBOX)
        .where(INBOX.c.id == entry_id, INBOX.c.answer.is_(None))
        .values(answer=answer, scope=scope, reply=storable(reply), answered_by=by, answered_ms=now_ms())
    )


def _end_waiting_in(connection: Connection, job_id: str, reason: str) -> None:
    now = now_ms()
    connection.execute(
        update(JOBS)
        .where(JOBS.c.id == job_id, JOBS.c.state == JobState.WAITING)
        .values(state=JobState.BLOCKED, reason=reason_of(reason), ended_ms=now, changed_ms=now, worker=None)
    )


def _continue_in(connection: Connection, entry: Entry, *, by: str, scope: GrantScope, reply: str) -> None:
    answered = QuestionAnswered(
        question=entry.id,
        run=entry.run_id,
        kind=entry.kind,
        rule=entry.rule,
        answer="allow",
        scope=scope,
        by=by,
        at=datetime.now(UTC).isoformat(),
        reply=reply,
    )
    add_job_grant_in(connection, entry.job, answered)
    if scope == "agent":
        add_agent_grant_in(connection, entry.agent, answered)
    connection.execute(
        update(JOBS)
        .where(JOBS.c.id == entry.job, JOBS.c.state == JobState.WAITING)
        .values(state=JobState.QUEUED, reason="", not_before_ms=0, changed_ms=now_ms(), worker=None)
    )


def _entry(row: RowMapping | Mapping[str, Any]) -> Entry:
    created_at = moment(row["created_ms"])
    assert created_at is not None
    return Entry(
        id=row["id"],
        job=row["job"],
        agent=row["agent"],
        attempt=row["attempt"],
        run_id=row["run_id"],
        kind=row["kind"],
        rule=json.loads(row["rule"]),
        text=row["text"],
        created_at=created_at,
        deadline=moment(row["deadline_ms"]),
        answer=row["answer"],
        scope=row["scope"],
        reply=row["reply"],
        answered_by=row["answered_by"],
        answered_at=moment(row["answered_ms"]),
    )
