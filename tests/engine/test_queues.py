"""Several queues in one database."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.postgres import Cluster, everything_in

from ringfence.engine import WorkflowState, open_engine
from ringfence.engine.liveness import Database, executor_name, liveness_of
from ringfence.errors import UsageError
from ringfence.testing.engine import workflows
from ringfence.testing.engine.ground import until


def _never() -> None:
    raise AssertionError("nobody dies here")


async def test_an_executor_takes_the_workflows_of_its_queue(url: str):
    """Those of other queues wait, are not listed, and stay when a queue is discarded."""
    async with (
        open_engine(url, queue="queue-b") as other,
        open_engine(url) as common,
        open_engine(url, queue="queue-a", workflows=workflows(_never)) as mine,
    ):
        for engine, id in ((other, "b-1"), (common, "c-1"), (mine, "a-1"), (mine, "a-2")):
            await engine.enqueue("echo", id=id, argument=id)
        for id in ("a-1", "a-2"):
            assert (await until(mine, id)).result == id
        assert {one.id for one in await mine.list()} == {"a-1", "a-2"}
        assert [(one.id, one.state) for one in await other.list()] == [("b-1", WorkflowState.WAITING)]
        assert [(one.id, one.state) for one in await common.list()] == [("c-1", WorkflowState.WAITING)]
        assert await other.heartbeat() == []
        await other.discard()
        assert await other.list() == []
        assert {one.id for one in await mine.list()} == {"a-1", "a-2"}
    async with open_engine(url, queue="queue-b") as other:  # again is the same as once
        await other.discard()


@pytest.mark.slow
async def test_a_discarded_queue_leaves_nothing(postgres: Cluster):
    """No row of it is left in any table of the database, whatever its workflows were at."""
    url = postgres.make_database()
    async with open_engine(url, queue="queue-kept", workflows=workflows(_never)) as kept:
        await kept.enqueue("steps", id="kept.1", argument={"notes": "/dev/null"})
        await until(kept, "kept.1")
    async with open_engine(url, queue="queue-gone", workflows=workflows(_never)) as gone:
        await gone.enqueue("steps", id="gone.1", argument={"notes": "/dev/null"})
        await until(gone, "gone.1")
    async with open_engine(url, queue="queue-gone") as gone:
        await gone.enqueue("echo", id="gone.2")
        await gone.discard()
    text = everything_in(url)
    assert ("gone" in text, "kept.1" in text, "queue-kept" in text) == (False, True, True), text


@pytest.mark.slow
def test_only_the_dead_of_ones_own_queue_are_buried(postgres: Cluster):
    """A dead executor of another queue is left to that one: what it ran is not ours to judge."""
    database = Database(postgres.make_database())
    database.prepare()
    dead = [executor_name(name, queue) for name, queue in (("one", "queue-a"), ("two", "queue-b"))]
    dead.append(executor_name("three", None))
    with database.engine.begin() as link:
        for number, name in enumerate(dead):
            link.execute(
                sa.text(
                    "INSERT INTO ringfence_executors (id, key, host, pid, process) VALUES (:id, :key, 'h', 1, '')"
                ),
                {"id": name, "key": number + 1},
            )
    living = liveness_of(database, executor_name("living", "queue-a"), queue="queue-a")
    living.register()
    buried: list[str] = []
    while not buried:  # nobody is tried in the first seconds of a server
        assert living.beat()
        buried = living.bury()
    assert buried == [dead[0]]
    assert living.known() == {executor_name("living", "queue-a"), *dead[1:]}
    living.leave()
    database.close()


@pytest.mark.parametrize("queue", ["", "ab", "Upper", "with.dot", "ringfence", "a" * 101])
def test_a_queue_is_named_plainly(tmp_path: Path, queue: str):
    """Other names are refused before anything is opened."""
    with pytest.raises(UsageError, match="no name of a queue"):
        open_engine(f"sqlite:///{tmp_path / 'engine.db'}", queue=queue)
