"""Grounds for the checks of engines: one in memory, and one on a database with executors in their own processes."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.engine.conformance import Worker, workflows
from tests.engine.memory import Memory, MemoryEngine

from ringfence.engine import Engine, open_engine

_ROOT = Path(__file__).parents[2]
_START_S = 60.0
_LEAVE_S = 60.0


class MemoryWorker:
    """An engine in this process stands for another."""

    def __init__(self, engine: MemoryEngine, tasks: anyio.abc.TaskGroup) -> None:
        self.id = str(engine.executor)
        self._engine = engine
        self._tasks = tasks
        self._is_gone = anyio.Event()
        self._is_told = anyio.Event()

    async def live(self) -> None:
        async with self._engine, anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_dead, tasks.cancel_scope)
            await self._is_told.wait()
            tasks.cancel_scope.cancel()
        self._is_gone.set()

    async def _until_dead(self, scope: anyio.CancelScope) -> None:
        await self._engine.stopped()
        scope.cancel()

    async def kill(self) -> None:
        self._engine.die()
        await self.ended()

    async def leave(self) -> None:
        self._is_told.set()
        await self.ended()

    async def pause(self) -> None:
        raise AssertionError("nothing in memory can be paused")

    async def go_on(self) -> None:
        raise AssertionError("nothing in memory can be paused")

    async def ended(self) -> None:
        await self._is_gone.wait()


class MemoryGround:
    """See `Ground`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memory = Memory()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        async with MemoryEngine(self._memory) as engine:
            yield engine

    @asynccontextmanager
    async def start(
        self, *, concurrency: int = 8, recoveries: int = 5, edition: int = 1
    ) -> AsyncIterator[Worker]:
        engine = MemoryEngine(
            self._memory,
            workflows=workflows(lambda: engine.die(), edition=edition),
            concurrency=concurrency,
            recoveries=recoveries,
        )
        async with anyio.create_task_group() as tasks:
            worker = MemoryWorker(engine, tasks)
            tasks.start_soon(worker.live)
            yield worker
            await worker.leave()


class ProcessWorker:
    """A process of its own."""

    def __init__(self, process: Process, id: str) -> None:
        self.process = process
        self.id = id

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self.ended()

    async def leave(self) -> None:
        self._signal(signal.SIGTERM)
        await self.ended()

    async def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    async def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    async def ended(self) -> None:
        with anyio.fail_after(_LEAVE_S):
            await self.process.wait()


class DatabaseGround:
    """See `Ground`; what executors print is a failure.

    Args:
        url: Of the database.
        folder: For files.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        async with open_engine(self.url) as engine:
            yield engine

    @asynccontextmanager
    async def start(
        self, *, concurrency: int = 8, recoveries: int = 5, edition: int = 1
    ) -> AsyncIterator[Worker]:
        words = [self.url, str(concurrency), str(recoveries), str(edition)]
        command = [sys.executable, "-m", "tests.engine.conformance.worker", *words]
        with (self.folder / f"stderr-{os.urandom(4).hex()}").open("w+b") as errors:
            async with await anyio.open_process(command, stderr=errors, cwd=_ROOT) as process:
                assert process.stdout is not None
                output = BufferedByteReceiveStream(process.stdout)
                worker = ProcessWorker(process, await self._name(output, errors.name))
                try:
                    yield worker
                    await worker.go_on()
                    await worker.leave()
                finally:
                    with anyio.CancelScope(shield=True):
                        await worker.kill()
                assert await _rest(output) == b""
            assert Path(errors.name).read_text() == ""  # noqa: ASYNC240 -- a small file of this machine

    async def _name(self, output: BufferedByteReceiveStream, errors: str) -> str:
        try:
            with anyio.fail_after(_START_S):
                return (await output.receive_until(b"\n", 1000)).decode()
        except anyio.IncompleteRead:
            raise AssertionError(Path(errors).read_text()) from None  # noqa: ASYNC240 -- a small file of this machine


async def _rest(output: BufferedByteReceiveStream) -> bytes:
    rest = b""
    with suppress(anyio.EndOfStream):
        while True:
            rest += await output.receive()
    return rest
