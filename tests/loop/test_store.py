"""The rows of a loop: those of version 0.1 are read, and what cannot be written is as if it had not been tried."""

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.loop.report.filling import COMMIT, Filling, story

from ringfence.errors import InfrastructureFault
from ringfence.filesystem import short_path
from ringfence.loop.control import ControlServer, follow_worker, send_cancel
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore, open_store, read_events, read_store

pytestmark = pytest.mark.anyio
_TABLES_OF_0_1 = """
CREATE TABLE loops (
    id TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL, reason TEXT DEFAULT '' NOT NULL, "plan" TEXT NOT NULL,
    configuration TEXT NOT NULL, base TEXT NOT NULL, branch TEXT NOT NULL, record TEXT NOT NULL,
    round INTEGER DEFAULT '1' NOT NULL, is_cancel_asked BOOLEAN NOT NULL, created_ms BIGINT NOT NULL,
    begun_ms BIGINT NOT NULL, ended_ms BIGINT, PRIMARY KEY (id)
);
CREATE TABLE loop_stories (
    loop TEXT NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
    reason TEXT DEFAULT '' NOT NULL, generation INTEGER DEFAULT '1' NOT NULL, attempt INTEGER DEFAULT '0' NOT NULL,
    stage TEXT DEFAULT '' NOT NULL, slot INTEGER, base TEXT, tests TEXT, tip TEXT, merged TEXT,
    answer TEXT DEFAULT '' NOT NULL, PRIMARY KEY (loop, id)
);
CREATE TABLE loop_steps (
    loop TEXT NOT NULL, story TEXT NOT NULL, generation INTEGER NOT NULL, name TEXT NOT NULL,
    role TEXT DEFAULT '' NOT NULL, attempt INTEGER DEFAULT '0' NOT NULL, model TEXT DEFAULT '' NOT NULL, run_id TEXT,
    outcome TEXT, result TEXT, tokens BIGINT DEFAULT '0' NOT NULL, cost_usd FLOAT DEFAULT '0' NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL, began_ms BIGINT NOT NULL, ended_ms BIGINT,
    PRIMARY KEY (loop, story, generation, name)
);
CREATE TABLE loop_events (
    loop TEXT NOT NULL, number INTEGER NOT NULL, "key" TEXT NOT NULL, at_ms BIGINT NOT NULL, type TEXT NOT NULL,
    story TEXT, data TEXT NOT NULL, PRIMARY KEY (loop, number)
);
CREATE UNIQUE INDEX loop_events_key ON loop_events (loop, "key");
INSERT INTO loops VALUES
    ('20260101-000000-abcdef', '/work', 'running', '', '{}', '{}', 'c0ffee', 'b', 'r', 1, 1, 1, 2, NULL);
INSERT INTO loop_stories VALUES
    ('20260101-000000-abcdef', 'one', 0, 'running', '', 1, 2, 'code', 0, 'a', 'b', NULL, NULL, '');
INSERT INTO loop_steps VALUES
    ('20260101-000000-abcdef', 'one', 1, 'tests.1', 'test_writer', 1, 'm', 'run', 'unverified', '{}', 7, 0.5, 1, 3, 4),
    ('20260101-000000-abcdef', 'one', 1, 'code.2', 'implementor', 2, 'm', 'other', NULL, NULL, 0, 0.0, 1, 5, NULL);
INSERT INTO loop_events VALUES ('20260101-000000-abcdef', 1, 'started', 3, 'loop.started', NULL, '{"stories": 1}');
"""


async def test_a_loop_of_0_1_is_read_and_resumed(tmp_path: Path):
    """As SQLAlchemy made its tables, with columns that have no meaning any more."""
    directory = LoopDirectory("20260101-000000-abcdef", tmp_path)
    directory.make()
    with closing(sqlite3.connect(directory.database)) as link, link:
        link.executescript(_TABLES_OF_0_1)
    with open_store(directory) as store:
        (row,) = store.stories
        store.begin_step(row.key("code.2"), run_id="again", role="implementor", attempt=2, model="m")
        store.end_step(row.key("code.2"), outcome="unverified", result={}, tokens=3)
        store.add_event("started", "loop.started", stories=1)
        store.add_event("ended", "loop.completed")
        store.end(LoopState.SUCCEEDED, "done")
    found = read_store(directory)
    assert (found.loop.state, found.loop.reason) == (LoopState.SUCCEEDED, "done")
    assert [(step.name, step.run_id, step.tries) for step in found.steps()] == [
        ("tests.1", "run", 1), ("code.2", "again", 2),
    ]  # fmt: skip
    assert (found.spent.calls, found.spent.tokens, found.spent.cost_usd) == (3, 10, 0.5)
    assert [(event.number, event.type) for event in found.events] == [
        (1, "loop.started"),
        (2, "loop.completed"),
    ]


async def test_what_cannot_be_written_is_as_it_was(tmp_path: Path):
    """A file that another program holds: nobody hears of the event, and a later write takes the same place."""
    filling = await Filling(tmp_path, story("one")).begin()
    store, heard = filling.store, list[str]()
    store.subscribe(lambda event: heard.append(event.type))
    with closing(sqlite3.connect(filling.directory.database)) as link:
        link.execute(
            "CREATE TRIGGER full BEFORE INSERT ON loop_events BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
        with pytest.raises(InfrastructureFault, match="disk is full"):
            _begin(store)
        assert (store.story("one").state, store.events, heard) == (StoryState.WAITING, [], [])
        link.execute("DROP TRIGGER full")
    _begin(store)
    assert ([event.number for event in read_events(filling.directory, 0)], heard) == (
        [1],
        ["story.dispatched"],
    )
    filling.close()


def _begin(store: LoopStore) -> None:
    with store.transaction():
        store.update_story("one", state=StoryState.RUNNING, base=COMMIT)
        store.add_event("a", "story.dispatched", story="one")


async def test_a_worker_is_followed_and_asked_to_stop_by_its_socket(tmp_path: Path):
    """Wherever the state directory is, and though a socket was left by a process that was killed."""
    filling = await Filling(tmp_path / ("deep" * 40), story("one")).begin()
    filling.close()
    directory, stopped, seen = filling.directory, anyio.Event(), list[int]()
    with socket.socket(socket.AF_UNIX) as left, short_path(directory.path / "worker.sock") as path:
        left.bind(path)
    assert not await send_cancel(directory)

    async def work() -> None:
        with open_store(directory) as store:
            server = ControlServer(directory, cancel=stopped.set)
            store.subscribe(lambda _event: server.notify())
            async with anyio.create_task_group() as tasks:
                await tasks.start(server.serve)
                while not seen:
                    await anyio.lowlevel.checkpoint()
                store.add_event("a", "loop.started")
                while seen[-1] < 1:
                    await anyio.lowlevel.checkpoint()
                assert await send_cancel(directory)
                await stopped.wait()
                store.add_event("b", "loop.completed")
                tasks.cancel_scope.cancel()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            while not directory.is_worked_on:
                await anyio.lowlevel.checkpoint()
            await follow_worker(directory, lambda: seen.append(len(read_events(directory, 0))))
    assert (seen[0], seen[-1], seen) == (0, 2, sorted(seen))
