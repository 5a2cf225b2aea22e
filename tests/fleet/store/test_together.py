"""Writes that come at the same time share a transaction, and nothing else."""

from collections.abc import Callable

import anyio
import pytest
from sqlalchemy import Connection, insert, select

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import AGENTS
from ringfence.fleet.store.together import Together

pytestmark = pytest.mark.anyio


def adds(name: str, *, fails: bool = False) -> Callable[[Connection], str]:
    """A write of one row, which may fail after that."""

    def act(connection: Connection) -> str:
        connection.execute(insert(AGENTS).values(name=name))
        if fails:
            raise UsageError(name)
        return name

    return act


async def names(database: Database) -> list[str]:
    """What was written."""
    return await database.read(lambda connection: sorted(connection.execute(select(AGENTS.c.name)).scalars()))


async def test_each_gets_its_own_answer(database: Database):
    """Many at once are all done, and each caller is told of its own."""
    together = Together(database)
    answers: list[tuple[str, str]] = []

    async def write(name: str) -> None:
        answers.append((name, await together.write(adds(name))))

    async with anyio.create_task_group() as tasks:
        for number in range(250):
            tasks.start_soon(write, f"a{number}")
    assert len(answers) == 250
    assert all(asked == told for asked, told in answers)
    assert len(await names(database)) == 250


async def test_one_that_fails_leaves_nothing_and_spares_the_others(database: Database):
    """What fails is undone whole and raised where it was asked for; its neighbours are kept."""
    together = Together(database)
    failed: list[str] = []

    async def write(name: str) -> None:
        try:
            await together.write(adds(name, fails=name.endswith("3")))
        except UsageError as exc:
            failed.append(str(exc))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(write, f"a{number}")
    assert failed == ["a3"]
    assert await names(database) == [f"a{number}" for number in range(10) if number != 3]


async def test_one_that_is_given_up_does_not_hold_up_the_next(database: Database):
    """A caller that is cancelled while it waits is not written for, and those after it are."""
    together = Together(database)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await together.write(adds("cancelled"))
        tasks.start_soon(together.write, adds("next"))
    assert await names(database) == ["next"]


async def test_a_database_that_is_away_is_told_to_all():
    """Where nothing could be written every caller is told so."""
    together = Together(Database("sqlite:////nonexistent/crew.db"))
    told: list[str] = []

    async def write(name: str) -> None:
        try:
            await together.write(adds(name))
        except InfrastructureFault:
            told.append(name)

    async with anyio.create_task_group() as tasks:
        for name in ("one", "two", "three"):
            tasks.start_soon(write, name)
    assert sorted(told) == ["one", "three", "two"]
