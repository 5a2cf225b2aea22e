"""Databases for the engine's checks, with executors in processes of their own."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.engine.conformance import Worker

from ringfence.engine import open_engine
from ringfence.engine.client import Engine

_ROOT = Path(__file__).parents[2]
_START_S = 60.0
_LEAVE_S = 60.0


class ProcessWorker:
    """An executor in a process of its own."""

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
    """A `Ground` on a database; any further output of an executor is a failure.

    Args:
        url: The URL of the database.
        folder: A directory for files.
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
