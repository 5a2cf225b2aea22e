"""Detecting live and dead executors, by lock and by heartbeat."""

import os
import subprocess
import sys
import time

import anyio
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from tests.postgres import Cluster

from ringfence.engine import open_engine
from ringfence.engine.liveness import Database, LockLost, identity, open_liveness
from ringfence.engine.liveness.base import HEARTBEAT_S, HEARTBEAT_TIMEOUT_S, HeartbeatMonitor
from ringfence.errors import InfrastructureFault


def _silent(looks: list[tuple[float, int]]) -> list[bool]:
    silence = HeartbeatMonitor()
    return [silence.overdue({"other": beat}, now=now) == ["other"] for now, beat in looks]


def test_a_silence_is_noticed():
    """An executor is overdue once its heartbeat has not changed for the timeout; any change restarts the timeout."""
    looks = [(float(second), 7) for second in range(17)]
    assert _silent(looks) == [False] * int(HEARTBEAT_TIMEOUT_S) + [True, True]
    assert _silent([*looks, (17.0, 8), (18.0, 8)])[-2:] == [False, False]


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=7))
def test_a_suspended_watcher_has_seen_nothing(gaps: list[float]):
    """However long the monitor itself was suspended, seven observations are too few to call an executor overdue."""
    now, looks = 0.0, [(0.0, 1)]
    for gap in gaps:
        now += gap
        looks.append((now, 1))
    assert 7 * 2 * HEARTBEAT_S < HEARTBEAT_TIMEOUT_S
    assert not any(_silent(looks))


def test_a_process_that_is_another_is_not_killed():
    """A process is not killed if its pid now belongs to another process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not identity.kill(process.pid, process="another boot:1")
        assert not identity.kill(process.pid, process="")
        assert process.poll() is None
        assert identity.kill(process.pid, process=identity.started(process.pid))
        assert process.wait(30) == -9


def test_a_process_that_is_gone_is_not_killed():
    """Killing a process that has ended does nothing."""
    with subprocess.Popen(["true"]) as process:
        process.wait(30)
    assert identity.started(process.pid) == ""
    assert not identity.kill(process.pid, process=identity.started(os.getpid()))


def test_only_the_dead_are_buried(url: str):
    """A registered executor with its lock is listed as live; one that has left, or an observer, is not listed."""
    database = Database(url)
    database.create_tables()
    first, second, onlooker = (open_liveness(database, name) for name in ("first", "second", None))
    first.register()
    second.register()
    assert first.heartbeat()
    assert not first.remove_dead()
    assert not second.remove_dead()
    assert onlooker.registered() == {*onlooker.live_executors()} == {"first", "second"}
    second.unregister()
    assert not first.remove_dead()
    assert onlooker.registered() == {*onlooker.live_executors()} == {"first"}
    first.unregister()
    assert onlooker.registered() == frozenset()
    onlooker.unregister()
    database.close()


@pytest.mark.slow
def test_a_failed_registration_leaves_no_session(postgres: Cluster):
    """An executor that cannot register, since its name is taken, keeps neither a lock nor a session of Postgres."""
    database = Database(postgres.make_database())
    database.create_tables()
    first, second = (open_liveness(database, "taken") for _ in range(2))
    first.register()
    count = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")

    def sessions() -> int:
        with database.engine.connect() as connection:
            return int(connection.execute(count).scalar_one())

    before = sessions()
    with pytest.raises(InfrastructureFault):
        second.register()
    deadline = time.monotonic() + 30
    while sessions() > before:  # the server ends a session shortly after its connection
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.unregister()
    database.close()


def test_who_is_not_known_any_longer_stops(url: str):
    """An executor whose row was deleted has lost its right to run workflows, even if it still has its lock."""
    database = Database(url)
    database.create_tables()
    first = open_liveness(database, "first")
    first.register()
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM ringfence_executors")
    try:
        first.heartbeat()
    except LockLost as lost:
        reason = str(lost)
    else:
        reason = ""
    first.unregister()
    database.close()
    assert "taken over" in reason


async def test_a_transaction_that_enqueues_wakes(url: str):
    """A waiting executor is woken as soon as the transaction that enqueues a workflow commits."""
    database = Database(url)
    database.create_tables()
    waiting = open_liveness(database, "waiting")
    waiting.register()
    woken: list[bool] = []
    async with open_engine(url) as engine:
        while await anyio.to_thread.run_sync(waiting.wait, 0.2):  # the tables of DBOS were new
            pass
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                woken.append(await anyio.to_thread.run_sync(waiting.wait, 60.0))

            tasks.start_soon(wait)
            with database.engine.begin() as connection:
                engine.enqueue_in(connection, "job", id="one")
    waiting.unregister()
    database.close()
    assert woken == [True]


def test_an_interrupted_executor_does_not_wait(url: str):
    """An executor that leaves does not wait for work first."""
    database = Database(url)
    database.create_tables()
    leaving = open_liveness(database, "leaving")
    leaving.register()
    leaving.interrupt()
    is_woken = leaving.wait(10_000.0)
    leaving.unregister()
    database.close()
    assert not is_woken


def test_preparing_at_once(url: str):
    """Creating the tables again leaves existing ones as they are."""
    for _ in range(2):
        database = Database(url)
        database.create_tables()
        database.close()
