"""Supervised sandboxes to test on: served by this process, and by real supervisor processes."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence.events import Event
from ringfence.job.request import CustomWork, RunRequest
from ringfence.job.standing_sandbox import create_standing
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.supervisor.client import attach, read_living_state
from ringfence.sandbox.supervisor.directory import (
    SandboxDirectory,
    SupervisorState,
    list_directories,
    standing_directory,
    standing_root,
)
from ringfence.sandbox.supervisor.server import serve_sandbox

OTHER_UID = 1500
Standing = Callable[..., Awaitable[SandboxDirectory]]


async def until(is_so: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    """Wait for what other processes do."""
    with anyio.fail_after(timeout_s):
        while not is_so():  # noqa: ASYNC110 -- other processes give no event
            await anyio.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """Pids of a process's children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Served:
    """A sandbox that this process serves, with what it recorded and how it ended."""

    def __init__(self, directory: SandboxDirectory, sandbox: Sandbox) -> None:
        self.directory = directory
        self.sandbox = sandbox
        self.recorded: list[Event] = []
        self.end: object = None

    async def record(self, event: Event) -> None:
        """Keep an event."""
        self.recorded.append(event)

    def attached(self, **options: Any) -> AbstractAsyncContextManager[Sandbox]:
        """A client."""
        return attach(self.directory, **options)


@asynccontextmanager
async def served(
    folder: Path,
    *,
    idle_s: float | None = None,
    opened: AbstractAsyncContextManager[Sandbox] | None = None,
    **spec: Any,
) -> AsyncIterator[Served]:
    """Serve a sandbox from this process, by default a new one, while the context lasts, or until it ends by itself."""
    directory = SandboxDirectory(folder / "served")
    lock = directory.claim()
    try:
        async with opened or Sandbox.open(SandboxSpec(**{"backend": "bubblewrap", **spec})) as sandbox:
            source = sandbox.placement.workspace_source
            state = SupervisorState(
                sandbox_id=sandbox.id,
                pid=os.getpid(),
                spec=sandbox.spec,
                facts=sandbox.facts,
                chosen_because="",
                created_at="",
                started_s=time.monotonic(),
                directory_inside=sandbox.workspace,
                source=None if source is None else str(source),
            )
            service = Served(directory, sandbox)
            ready = anyio.Event()

            async def serve() -> None:
                async def is_ready() -> None:
                    ready.set()

                try:
                    service.end = await serve_sandbox(
                        sandbox, directory, state, idle_s=idle_s, record=service.record, on_ready=is_ready
                    )
                except Exception as exc:  # noqa: BLE001 -- what it ends with is what is asked for
                    service.end = exc

            error: Exception | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                await ready.wait()
                try:
                    yield service
                except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
                    error = exc
                tasks.cancel_scope.cancel()
            if error is not None:
                raise error
    finally:
        os.close(lock)
        directory.remove()


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory of our own."""
    directory = Path(tempfile.mkdtemp(prefix="ringfence-served-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def standing(workspace: Path) -> Iterator[Standing]:
    """Makes standing sandboxes by real supervisors; what is left of them is killed."""

    async def make(name: str = "one", **changes: Any) -> SandboxDirectory:
        idle_s = changes.pop("idle_s", 600.0)
        spec = SandboxSpec(**{"backend": "bubblewrap", "workspace": workspace, **changes})
        request = RunRequest(CustomWork(name, runtime="standing"), workspace, spec, purpose="standing")
        failure = await create_standing(name, request, idle_s=idle_s)
        assert failure is None, failure
        return standing_directory(name)

    yield make
    for directory in list_directories(standing_root()):
        if directory.is_alive():
            os.kill(read_living_state(directory).pid, signal.SIGKILL)
