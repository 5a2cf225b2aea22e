"""Held sandboxes to test on: by a holder in this process, and by real holder processes."""

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
from ringfence.job.request import RunRequest
from ringfence.job.standing import create_standing
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.supervisor.attaching import attach, attachable
from ringfence.sandbox.supervisor.place import HolderPlace, claim, places_in, standing_dir, standing_place
from ringfence.sandbox.supervisor.serving import hold
from ringfence.sandbox.supervisor.state import HolderState

OTHER_UID = 1500
Standing = Callable[..., Awaitable[HolderPlace]]


class Holder:
    """A sandbox held by this process, with what it recorded and how it ended."""

    def __init__(self, place: HolderPlace, state: HolderState) -> None:
        self.place = place
        self.state = state
        self.recorded: list[Event] = []
        self.end: object = None

    async def record(self, event: Event) -> None:
        """Keep an event."""
        self.recorded.append(event)

    def attached(self, **options: Any) -> AbstractAsyncContextManager[Sandbox]:
        """A client."""
        return attach(self.place, self.state, **options)


@asynccontextmanager
async def held_by_us(directory: Path, *, idle_s: float | None = None, **spec: Any) -> AsyncIterator[Holder]:
    """Hold a new sandbox in this process while the context lasts, or until it ends by itself."""
    place = HolderPlace(directory / "held")
    lock = claim(place)
    try:
        async with Sandbox.open(SandboxSpec(**{"backend": "bubblewrap", **spec})) as sandbox:
            state = HolderState(
                sandbox_id=sandbox.id,
                kind="standing",
                pid=os.getpid(),
                spec=sandbox.spec,
                placement=sandbox.placement,
                facts=sandbox.facts,
                chosen_because="",
                created_at="",
                born_s=time.monotonic(),
            )
            holder = Holder(place, state)
            ready = anyio.Event()

            async def serve() -> None:
                async def is_ready() -> None:
                    ready.set()

                try:
                    holder.end = await hold(
                        sandbox, place, state, idle_s=idle_s, record=holder.record, on_ready=is_ready
                    )
                except Exception as exc:  # noqa: BLE001 -- what it ends with is what is asked for
                    holder.end = exc

            error: Exception | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                await ready.wait()
                try:
                    yield holder
                except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
                    error = exc
                tasks.cancel_scope.cancel()
            if error is not None:
                raise error
    finally:
        os.close(lock)
        place.remove()


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory of our own."""
    directory = Path(tempfile.mkdtemp(prefix="ringfence-holder-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def standing(workspace: Path) -> Iterator[Standing]:
    """Makes standing sandboxes by real holders; what is left of them is killed."""

    async def make(name: str = "one", **changes: Any) -> HolderPlace:
        idle_s = changes.pop("idle_s", 600.0)
        spec = SandboxSpec(**{"backend": "bubblewrap", "workspace": workspace, **changes})
        request = RunRequest(
            prompt=name, workspace=workspace, spec=spec, purpose="standing", runtime="standing"
        )
        refused = await create_standing(name, request, idle_s=idle_s)
        assert refused is None, refused
        return standing_place(name)

    yield make
    for place in places_in(standing_dir()):
        if place.is_alive():
            os.kill(attachable(place).pid, signal.SIGKILL)
