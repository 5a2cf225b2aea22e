"""Databases for the engine's checks, with executors in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from tests.engine.conformance import Worker
from tests.forked import Forked

from ringfence.engine import open_engine
from ringfence.engine.client import Engine

_ROOT = Path(__file__).parents[2]
_START_S = 60.0
_LEAVE_S = 60.0


class ProcessWorker:
    """An executor in a process of its own."""

    def __init__(self, process: Forked[bytes], id: str) -> None:
        self.process = process
        self.id = id

    def _signal(self, number: signal.Signals) -> None:
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
            await anyio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)


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
            with Forked[bytes](command, stdout=subprocess.PIPE, stderr=errors, cwd=_ROOT) as process:
                worker = ProcessWorker(process, await self._name(process, errors.name))
                try:
                    yield worker
                    await worker.go_on()
                    await worker.leave()
                finally:
                    with anyio.CancelScope(shield=True):
                        await worker.kill()
                assert process.stdout is not None
                assert process.stdout.read() == b""
            assert Path(errors.name).read_text() == ""  # noqa: ASYNC240 -- a small file of this machine

    async def _name(self, process: Forked[bytes], errors: str) -> str:
        assert process.stdout is not None
        with anyio.fail_after(_START_S):
            line = await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
        assert line.endswith(b"\n"), Path(errors).read_text()  # noqa: ASYNC240 -- a small file of this machine
        return line.decode().rstrip()
