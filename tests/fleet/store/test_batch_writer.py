"""Concurrent writes share a transaction, but neither results nor errors."""

import threading
from collections.abc import Sequence

import anyio
import pytest
from sqlalchemy import Connection, insert, select

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.store.batch_writer import BatchWriter
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import AGENTS

pytestmark = pytest.mark.anyio


class Failing(str):
    """A name whose write fails, together with all writes of its transaction."""

    __slots__ = ()


class LeftOut(str):
    """A name that is not written."""

    __slots__ = ()


def add_all(connection: Connection, asked: Sequence[str]) -> list[str | Exception]:
    """Write a row for each name."""
    for name in asked:
        if not isinstance(name, LeftOut):
            connection.execute(insert(AGENTS).values(name=name))
        if isinstance(name, Failing):
            raise UsageError(name)
    return [UsageError(name) if isinstance(name, LeftOut) else name for name in asked]


async def names(database: Database) -> list[str]:
    """Return the names that were written."""
    return await database.read(lambda connection: sorted(connection.execute(select(AGENTS.c.name)).scalars()))


async def test_each_gets_its_own_answer(database: Database):
    """Many concurrent writes are all done, and each caller receives its own result."""
    together = BatchWriter(database, add_all)
    answers: list[tuple[str, str]] = []

    async def write(name: str) -> None:
        answers.append((name, await together.write(name)))

    async with anyio.create_task_group() as tasks:
        for number in range(250):
            tasks.start_soon(write, f"a{number}")
    assert len(answers) == 250
    assert all(asked == told for asked, told in answers)
    assert len(await names(database)) == 250


@pytest.mark.parametrize("kind", [Failing, LeftOut])
async def test_one_that_fails_leaves_nothing_and_spares_the_others(database: Database, kind: type[str]):
    """A failed write is undone completely and raised to its caller; the writes beside it are kept."""
    together = BatchWriter(database, add_all)
    failed: list[str] = []

    async def write(name: str) -> None:
        try:
            await together.write(kind(name) if name.endswith("3") else name)
        except UsageError as exc:
            failed.append(str(exc))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(write, f"a{number}")
    assert failed == ["a3"]
    assert await names(database) == [f"a{number}" for number in range(10) if number != 3]


async def test_one_that_is_given_up_does_not_hold_up_the_next(database: Database):
    """The write of a caller that is cancelled while it waits is skipped; the next ones are done."""
    together = BatchWriter(database, add_all)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await together.write("cancelled")
        tasks.start_soon(together.write, "next")
    assert await names(database) == ["next"]


async def test_one_that_is_given_up_while_it_is_written_is_given_up_in_order(database: Database):
    """A caller that is cancelled during its write, together with others, receives only the cancellation."""
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def slowly(connection: Connection, asked: Sequence[str]) -> list[str | Exception]:
        begun.release()
        may_end.acquire(timeout=30)
        return add_all(connection, asked)

    together = BatchWriter(database, slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(together.write, "first")
        await anyio.to_thread.run_sync(begun.acquire)
        async with anyio.create_task_group() as given_up:
            tasks.start_soon(together.write, "second")
            given_up.start_soon(together.write, "third")
            await anyio.wait_all_tasks_blocked()
            may_end.release()
            await anyio.to_thread.run_sync(begun.acquire)
            given_up.cancel_scope.cancel()
        may_end.release()
    assert set(await names(database)) >= {"first", "second"}


async def test_a_database_that_is_away_is_told_to_all():
    """When nothing can be written, every caller receives the error."""
    together = BatchWriter(Database("sqlite:////nonexistent/crew.db"), add_all)
    told: list[str] = []

    async def write(name: str) -> None:
        try:
            await together.write(name)
        except InfrastructureFault:
            told.append(name)

    async with anyio.create_task_group() as tasks:
        for name in ("one", "two", "three"):
            tasks.start_soon(write, name)
    assert sorted(told) == ["one", "three", "two"]
