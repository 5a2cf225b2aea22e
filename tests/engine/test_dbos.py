"""The engine's use of DBOS, and of the databases in which DBOS stores its data."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.engine.conformance import workflows
from tests.engine.conformance.ground import Notes, until
from tests.engine.grounds import DatabaseGround
from tests.postgres import Cluster, cluster

from ringfence.engine import WorkflowState, dbos_process, open_engine
from ringfence.engine.executor import Executor
from ringfence.errors import InfrastructureFault, UsageError


def _never() -> None:
    raise AssertionError("nobody dies here")


async def test_one_executor_in_a_process(tmp_path: Path):
    """A second executor in one process is refused until the first has left."""
    url = f"sqlite:///{tmp_path / 'engine.db'}"
    for number in range(2):
        async with open_engine(url, workflows=workflows(_never)) as engine:
            with pytest.raises(UsageError, match="has an executor of workflows already"):
                async with open_engine(url, workflows={}):
                    pass
            await engine.enqueue("echo", id=f"echo-{number}", argument=number)
            assert (await until(engine, f"echo-{number}")).result == number
            assert await engine.live_executors() == [engine.executor]


async def test_runs_in_the_callers_loop(tmp_path: Path):
    """A workflow runs in the event loop that opened the engine, and ends with the engine."""
    seen: list[object] = []
    began = anyio.Event()

    async def workflow(_: object, argument: object) -> object:
        seen.append(anyio.get_current_task().id)
        began.set()
        await anyio.sleep_forever()
        return None

    async with open_engine(f"sqlite:///{tmp_path / 'engine.db'}", workflows={"waits": workflow}) as engine:
        await engine.enqueue("waits", id="waits")
        with anyio.fail_after(30):
            await began.wait()
        assert seen[0] in {task.id for task in anyio.get_running_tasks()}
    assert seen[0] not in {task.id for task in anyio.get_running_tasks()}


async def test_taken_over_while_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An executor that leaves and loses its right to run at the same time is stopped once."""
    file = tmp_path / "engine.db"
    began, leaving, may_end = anyio.Event(), anyio.Event(), anyio.Event()
    inside, overlaps, destroy = threading.Lock(), list[bool](), dbos_process.destroy

    def watched() -> None:
        is_alone = inside.acquire(blocking=False)
        overlaps.append(not is_alone)
        try:
            destroy()
        finally:
            if is_alone:
                inside.release()

    async def slow(_: object, __: object) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            leaving.set()
            with anyio.CancelScope(shield=True):
                await may_end.wait()

    async def take_over(executor: Executor) -> None:
        await leaving.wait()
        with sqlite3.connect(file) as database:
            database.execute("DELETE FROM ringfence_executors")
        while executor.lost is None:  # noqa: ASYNC110 -- its own heartbeat notices
            await anyio.sleep(0.01)
        may_end.set()

    monkeypatch.setattr(dbos_process, "destroy", watched)
    url = f"sqlite:///{file}"
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks, open_engine(url, workflows={"slow": slow}) as engine:
            assert isinstance(engine, Executor)
            await engine.enqueue("slow", id="slow")
            await began.wait()
            tasks.start_soon(take_over, engine)
    assert (len(overlaps) > 0, any(overlaps)) == (True, False)


def _dbos_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("queue-worker-")]


@pytest.mark.slow
async def test_an_executor_without_work_runs_no_dbos(tmp_path: Path):
    """DBOS, which polls the database, runs in an executor only while there is work, and starts again for more."""
    async with open_engine(f"sqlite:///{tmp_path / 'engine.db'}", workflows=workflows(_never)) as engine:
        at_first = _dbos_threads()
        await engine.enqueue("echo", id="first")
        await until(engine, "first")
        at_work = _dbos_threads()
        with anyio.fail_after(60):
            while _dbos_threads():  # noqa: ASYNC110 -- threads have no event to wait for
                await anyio.sleep(0.1)
        await engine.enqueue("echo", id="second")
        await until(engine, "second")
        again = _dbos_threads()
    assert (at_first, len(at_work) > 0, len(again) > 0) == ([], True, True)


def test_nothing_is_kept_but_json(tmp_path: Path):
    """The database contains no pickles, so that write access to it does not make executors run code."""
    file = tmp_path / "engine.db"

    async def run() -> None:
        async with open_engine(f"sqlite:///{file}", workflows=workflows(_never)) as engine:
            for name, argument in (("echo", {"a": 1}), ("fails", {"notes": str(tmp_path / "notes")})):
                await engine.enqueue(name, id=name, argument=argument)
                await until(engine, name)

    anyio.run(run)
    with sqlite3.connect(file) as connection:
        kinds = connection.execute("SELECT DISTINCT serialization FROM workflow_status").fetchall()
        kinds += connection.execute("SELECT DISTINCT serialization FROM operation_outputs").fetchall()
    connection.close()
    assert {*kinds} == {("ringfence_json",)}


def test_importing_costs_nothing():
    """Neither DBOS nor SQLAlchemy is imported before an engine is opened."""
    code = (
        "import sys, ringfence.engine; print([one for one in ('dbos', 'sqlalchemy') if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "nonsense"])
def test_other_databases_are_refused(url: str):
    """Only SQLite in a file and Postgres are accepted as databases."""
    with pytest.raises(UsageError, match="sqlite:///FILE or postgresql"):
        open_engine(url)


async def test_unreachable_without_its_password():
    """An unreachable database is an infrastructure fault that names its address, but no password."""
    with pytest.raises(InfrastructureFault, match=r"127\.0\.0\.1:1/db") as caught:
        async with open_engine("postgresql://me:geheim@127.0.0.1:1/db"):
            pass
    assert "geheim" not in str(caught.value)


async def test_unwritable_directory(tmp_path: Path):
    """A database file that cannot be created is an infrastructure fault that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureFault, match=r"engine\.db"):
        async with open_engine(f"sqlite:///{tmp_path / 'file' / 'engine.db'}"):
            pass


@pytest.mark.slow
async def test_postgres_restarts_while_executors_wait(tmp_path: Path):
    """An executor without work survives a restart of Postgres, and the next workflow wakes it."""
    with cluster() as own:
        ground = DatabaseGround(own.make_database(), tmp_path)
        async with ground.start() as worker:
            async with ground.open() as engine:
                await anyio.to_thread.run_sync(own.stop)
                await anyio.to_thread.run_sync(own.start)
            async with ground.open() as engine:
                await engine.enqueue("echo", id="echo", argument=1)
                ended = await until(engine, "echo")
                with anyio.fail_after(30):  # its lock is back once it has reconnected
                    while await engine.live_executors() != [worker.id]:  # noqa: ASYNC110 -- only polling shows it
                        await anyio.sleep(0.05)
    assert (ended.result, ended.executor) == (1, worker.id)


@pytest.mark.slow
async def test_postgres_restarts_under_load(tmp_path: Path):
    """Postgres is killed and restarted while two executors work: nothing is lost, repeated or ended twice."""
    with cluster() as own:
        await _restart_under_load(own, DatabaseGround(own.make_database(), tmp_path))


async def _restart_under_load(own: Cluster, ground: DatabaseGround) -> None:
    held = [Notes(ground, f"held-{number}") for number in range(4)]
    quick = [Notes(ground, f"quick-{number}") for number in range(20)]
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(ground.start(concurrency=8)) for _ in range(2)]
        async with ground.open() as engine:
            for one in held:
                await engine.enqueue("gated", id=one.path.name, argument=one.argument)
                await one.until("hold")
            for one in quick:
                await engine.enqueue("steps", id=one.path.name, argument=one.argument)
        await anyio.to_thread.run_sync(own.stop)
        for one in held:
            one.open_gate()
        await anyio.to_thread.run_sync(own.start)
        async with ground.open() as engine:
            ended = [await until(engine, one.path.name) for one in (*held, *quick)]
            with anyio.fail_after(30):  # executors that lost the database are listed again once reconnected
                while {*await engine.live_executors()} != {one.id for one in workers}:  # noqa: ASYNC110 -- only polling shows it
                    await anyio.sleep(0.05)
    assert [(one.state, one.error) for one in ended] == [(WorkflowState.DONE, None)] * len(ended)
    assert [one.lines for one in held] == [["first", "hold", "last"]] * len(held)
    assert {line for one in quick for line in one.lines} == {"0", "1", "2", "3", "4"}
