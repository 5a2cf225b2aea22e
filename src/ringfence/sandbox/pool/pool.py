"""Warm sandboxes: handed out once each, only after a fresh answer of the guest, and replaced at once."""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread

from ringfence.errors import RingfenceError, SandboxError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement
from ringfence.sandbox.pool.adoption import adoptable, adopted, is_taken, state_at, take
from ringfence.sandbox.pool.counts import Counts, note, read_counts
from ringfence.sandbox.pool.shape import Shape, shape_of
from ringfence.sandbox.pool.slot import fits, hand_over, make_skeleton
from ringfence.sandbox.registry import examine, get_backend
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.supervisor.client import end_sandbox
from ringfence.sandbox.supervisor.directory import (
    SandboxDirectory,
    SupervisorState,
    list_directories,
    remove_remnants,
)
from ringfence.sandbox.supervisor.launcher import start_supervisor

_MODULE = "ringfence.sandbox.pool.member"
_PROBE_S = 1.0
_LOOK_S = 0.05


@frozen
class PoolSize:
    """How much is kept warm."""

    size: int
    """Sandboxes of each shape."""
    max_age_s: float
    """One that nobody wanted for so long ends."""


class Pool:
    """The pool of a state directory.

    Args:
        folder: Where its sandboxes are; each state directory has its own, and none touches another's.
        size: How much is kept.
        secrets: Values that do not go into the environment of holders.
    """

    def __init__(self, folder: Path, size: PoolSize, *, secrets: Sequence[str] = ()) -> None:
        self._folder = folder
        self._size = size
        self._secrets = secrets

    @asynccontextmanager
    async def opened(
        self, spec: SandboxSpec, placement: Placement, run_dir: Path, *, sandbox_id: str
    ) -> AsyncIterator[Sandbox]:
        """A sandbox for a run: a warm one if there is one that fits, else a cold one; then the pool is refilled.

        Args:
            spec: What is asked for.
            placement: As prepared for the run.
            run_dir: The run's directory, with what `placement` shows of it.
            sandbox_id: Name of a cold one.

        Raises:
            PolicyRefused, SandboxStartFailed: As `Sandbox.open`.
            InfrastructureFault: The hand-over failed half-way; the run's workspace is not whole.
        """
        async with AsyncExitStack() as stack:
            sandbox = await self._warm(spec, placement, run_dir, stack)
            note(self._made(), "misses" if sandbox is None else "hits")
            if sandbox is None:
                cold = Sandbox.open(spec, placement=placement, sandbox_id=sandbox_id, run_id=run_dir.name)
                sandbox = await stack.enter_async_context(cold)
            async with _aside(lambda: self.refill(spec, placement, run_dir)):
                yield sandbox

    async def _warm(
        self, spec: SandboxSpec, placement: Placement, run_dir: Path, stack: AsyncExitStack
    ) -> Sandbox | None:
        """A warm sandbox with the run's own contents in it, entered on `stack`; None if none fits."""
        meant = (await examine(spec, with_image=True)).image_id
        try:
            shape = shape_of(spec, placement, run_dir, image_id=meant)
        except OSError:
            return None  # a cold start says what is missing
        for place in self._of(shape):
            state = adoptable(place)
            # A name may get another meaning while a sandbox is being started by it.
            if state is None or (meant is not None and meant not in (state.facts.image or "")):
                continue
            async with AsyncExitStack() as trial:
                try:
                    sandbox = await trial.enter_async_context(adopted(place, state, spec, placement))
                    await sandbox.ping(timeout_s=_PROBE_S)
                    is_fit = await anyio.to_thread.run_sync(fits, place.path, run_dir)
                except SandboxError:
                    is_fit = False
                if is_fit:
                    await anyio.to_thread.run_sync(hand_over, place.path, run_dir)
                    async for _result in sandbox.set_up(spec.setup):
                        pass
                    stack.push_async_exit(trial.pop_all())
                    return sandbox
            note(self._folder, "stale")
        return None

    def _of(self, shape: Shape) -> list[SandboxDirectory]:
        return [place for place in list_directories(self._folder) if place.name.startswith(shape.key)]

    def _made(self) -> Path:
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder

    async def refill(self, spec: SandboxSpec, placement: Placement, run_dir: Path) -> int:
        """Start what is missing of a run's shape and end what has another for the same request; returns how many.

        What cannot be started is counted, and no reason for a run to fail.
        """
        started = 0
        try:
            meant = (await examine(spec, with_image=True)).image_id
            shape = shape_of(spec, placement, run_dir, image_id=meant)
            await self.sweep()
            for place in list_directories(self._folder):
                if place.name.startswith(shape.request) and not place.name.startswith(shape.key):
                    await self._end_unless_taken(place)
            there = sum(not is_taken(place) for place in self._of(shape))
            for _ in range(self._size.size - there):
                await self._start(shape, spec, placement, run_dir)
                started += 1
        except (RingfenceError, OSError) as exc:
            note(self._folder, "failed", str(exc))
        return started

    async def _start(self, shape: Shape, spec: SandboxSpec, placement: Placement, run_dir: Path) -> None:
        place = SandboxDirectory(self._folder / f"{shape.key}-{uuid4().hex[:8]}")
        lock = place.claim()
        try:
            own = await anyio.to_thread.run_sync(make_skeleton, placement, run_dir, place.path)
            order = {
                "spec": spec.model_copy(update={"setup": (), "env": {}, "ttl_s": None}),
                "placement": own,
                "sandbox_id": uuid4().hex[:12],
                "max_age_s": self._size.max_age_s,
            }
        except BaseException:
            os.close(lock)
            place.remove()
            raise
        await start_supervisor(_MODULE, place, lock, order, secrets=self._secrets, wait=False)

    async def drain(self) -> int:
        """End every sandbox that is waiting; those handed out stay their runs'. Returns how many."""
        await self.sweep()
        ended = [await self._end_unless_taken(place) for place in list_directories(self._folder)]
        return sum(ended)

    async def drain_of(self, directory: Path, *, patience_s: float) -> int:
        """End those that wait for runs on workspaces below a directory; returns how many.

        Args:
            directory: No run will be on a workspace there any more.
            patience_s: How long those are waited for that are still coming up, as nobody knows whose they are.
        """
        ended, deadline = 0, time.monotonic() + patience_s
        while True:
            is_known = True
            for place, state in self.waiting():
                if state is None:
                    is_known = False
                elif state.workspace is not None and Path(state.workspace).is_relative_to(directory):
                    ended += await self._end_unless_taken(place)
            if is_known or time.monotonic() > deadline:
                return ended
            await anyio.sleep(_LOOK_S)

    async def _end_unless_taken(self, place: SandboxDirectory) -> bool:
        return take(place) and await end_sandbox(place)

    async def sweep(self) -> int:
        """Remove what holders that died left behind; returns how many there were."""
        swept = 0
        for place in list_directories(self._folder):
            if place.is_alive():
                continue
            with suppress(RingfenceError):
                state = place.read_state()
                if state is not None:
                    await get_backend(state.facts.backend).remove_leftovers(frozenset({state.sandbox_id}))
            place.remove()
            swept += 1
        await anyio.to_thread.run_sync(remove_remnants, self._folder)
        return swept

    def counts(self) -> Counts:
        """How often it had what was asked for."""
        return read_counts(self._folder)

    def waiting(self) -> list[tuple[SandboxDirectory, SupervisorState | None]]:
        """Sandboxes that live and are nobody's yet, with what they say; None for those still coming up."""
        alive = [
            place for place in list_directories(self._folder) if place.is_alive() and not is_taken(place)
        ]
        return [(place, state_at(place)) for place in alive]


@asynccontextmanager
async def _aside(act: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Do something beside the body, and see it through."""
    error: Exception | None = None

    async def see_through() -> None:
        await act()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(see_through)
        try:
            yield
        except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
            error = exc
    if error is not None:
        raise error
