"""Closes the questions whose deadline has passed: their jobs end `blocked`."""

from datetime import UTC, datetime

import anyio

from ringfence.errors import RingfenceError
from ringfence.fleet.log import Log
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.inbox import Inbox

_CHECK_S = 2.0


async def expire_questions(database: Database, log: Log) -> None:
    """Close expired questions until cancelled. Deadlines are stored in the database, so a restart changes none."""
    inbox, fault = Inbox(database), ""
    while True:
        try:
            for job in await inbox.expire(datetime.now(UTC)):
                line = f"job {job}: its question was not answered by its deadline"
                log(line, event="question.expired", job=job)
            fault = ""
        except RingfenceError as exc:
            if str(exc) != fault:  # logged once, however long the database is unreachable
                fault = str(exc)
                log(f"questions: {exc}", event="question.failed")
        await anyio.sleep(_CHECK_S)
