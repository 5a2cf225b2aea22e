"""Keeps warm sandboxes: starts them ahead on a skeleton, gives each to one run of its shape, and replaces it at once.

A run adopts a warm sandbox: the sandbox is marked as taken for good, its guest must answer, the run's own contents are
moved into it, and from then on the run talks to the guest directly. A run never fails because a sandbox cannot be
started ahead or does not fit: it starts a cold one.
"""

import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
from anyio.abc import ByteStream

from ringfence.background_tasks import background_tasks
from ringfence.config.paths import state_dir
from ringfence.errors import InfrastructureFault, RingfenceError, SandboxError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Launch, Placement, Usage
from ringfence.sandbox.guest import frames
from ringfence.sandbox.pool.counts import Counts, count, read_counts
from ringfence.sandbox.pool.skeleton import Shape, fits, hand_over, make_skeleton, shape_of
from ringfence.sandbox.pool.volume import WarmVolume
from ringfence.sandbox.protocol.loader import guest_arguments
from ringfence.sandbox.registry import get_backend, image_id_of
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.supervisor.client import SupervisedFence, end_sandbox, ensure_exit
from ringfence.sandbox.supervisor.connection import ADOPT, LOST, USAGE
from ringfence.sandbox.supervisor.directory import (
    SandboxDirectory,
    SupervisorState,
    list_directories,
    remove_remnants,
)
from ringfence.sandbox.supervisor.launcher import start_supervisor
from ringfence.sandbox.workspace.upload import Upload, uploaded_to

_MODULE = "ringfence.sandbox.pool.supervisor"
_TAKEN = "taken"
_PROBE_S = 1.0
_LOOK_S = 0.05
_USAGE_S = 5.0
_REFILL_AFTER_S = 0.1
"""The first commands of a run do not share the machine with the start of the next sandbox."""
_DRAIN_TIMEOUT_S = 30.0
_DRAIN_PATIENCE_S = 10.0


@frozen
class PoolSize:
    """How many sandboxes are kept warm, and for how long."""

    size: int
    """Sandboxes of each shape."""
    max_age_s: float
    """Age at which a warm sandbox that no run has taken ends."""


class Pool:
    """The pool of a state directory.

    Args:
        folder: The directory of its sandboxes; each state directory has a separate one.
        size: How many sandboxes are kept.
        secrets: Values that are left out of the environment of supervisors.
    """

    def __init__(self, folder: Path, size: PoolSize, *, secrets: Sequence[str] = ()) -> None:
        self._folder = folder
        self._size = size
        self._secrets = secrets

    @asynccontextmanager
    async def opened(
        self, spec: SandboxSpec, placement: Placement, run_dir: Path, *, sandbox_id: str
    ) -> AsyncIterator[Sandbox]:
        """Open a sandbox for a run, which sets it up: a warm one if one fits, else a cold one; then refill the pool.

        Args:
            spec: The requested sandbox.
            placement: As prepared for the run.
            run_dir: The run's directory, which holds the sources that `placement` shows.
            sandbox_id: Id for a cold sandbox.

        Raises:
            PolicyRefused, SandboxStartFailed: As `Sandbox.open`.
            InfrastructureFault: The hand-over failed half-way; the run's workspace is damaged.
        """
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
        async with AsyncExitStack() as stack:
            sandbox = await self._adopt(spec, placement, run_dir, stack)
            count(self._folder, "misses" if sandbox is None else "hits")
            if sandbox is None:
                cold = Sandbox.start(spec, placement=placement, sandbox_id=sandbox_id, run_id=run_dir.name)
                sandbox = await stack.enter_async_context(cold)
            async with background_tasks(wait=True) as tasks:
                tasks.start_soon(self._refill_later, spec, placement, run_dir)
                yield sandbox

    async def _adopt(
        self, spec: SandboxSpec, placement: Placement, run_dir: Path, stack: AsyncExitStack
    ) -> Sandbox | None:
        """A warm sandbox with the run's own contents in it, entered on `stack`; None if none fits."""
        image_id = await image_id_of(spec)
        try:
            shape = shape_of(spec, placement, run_dir, image_id=image_id)
        except OSError:
            return None  # a cold start reports what is missing
        for directory in self._of(shape):
            state = take_ready(directory)
            # An image's name may come to mean another image while a sandbox is being started from it.
            if state is None or (image_id is not None and image_id not in (state.facts.image or "")):
                continue
            async with AsyncExitStack() as trial:
                try:
                    upload = await _uploaded(directory, state, spec, placement, trial)
                    warm = _adopted(directory, state, spec, placement, upload)
                    sandbox = await trial.enter_async_context(warm)
                    await sandbox.ping(timeout_s=_PROBE_S)
                    is_fit = upload is not None or await anyio.to_thread.run_sync(
                        fits, directory.path, run_dir
                    )
                except SandboxError:
                    is_fit = False
                if is_fit:
                    if upload is None:
                        await anyio.to_thread.run_sync(hand_over, directory.path, run_dir)
                    stack.push_async_exit(trial.pop_all())
                    return sandbox
            count(self._folder, "stale")
        return None

    def _of(self, shape: Shape) -> list[SandboxDirectory]:
        return [each for each in list_directories(self._folder) if each.name.startswith(shape.key)]

    async def _refill_later(self, spec: SandboxSpec, placement: Placement, run_dir: Path) -> None:
        await anyio.sleep(_REFILL_AFTER_S)
        await self.refill(spec, placement, run_dir)

    async def refill(self, spec: SandboxSpec, placement: Placement, run_dir: Path) -> int:
        """Start missing sandboxes of a run's shape and end those of another shape for the same request; return how many.

        Failures to start are counted, and do not make a run fail.
        """
        started = 0
        try:
            image_id = await image_id_of(spec)
            shape = shape_of(spec, placement, run_dir, image_id=image_id)
            await self.sweep()
            for directory in list_directories(self._folder):
                if directory.name.startswith(shape.request) and not directory.name.startswith(shape.key):
                    await _end_unless_taken(directory)
            ready = sum(not _is_taken(directory) for directory in self._of(shape))
            for _ in range(self._size.size - ready):
                await self._start(shape, spec, placement, run_dir)
                started += 1
        except (RingfenceError, OSError) as exc:
            count(self._folder, "failed", str(exc))
        return started

    async def _start(self, shape: Shape, spec: SandboxSpec, placement: Placement, run_dir: Path) -> None:
        directory = SandboxDirectory(self._folder / f"{shape.key}-{uuid4().hex[:8]}")
        lock = directory.claim()
        try:
            own = placement
            if placement.upload == "none":
                own = await anyio.to_thread.run_sync(make_skeleton, placement, run_dir, directory.path)
        except BaseException:
            os.close(lock)
            directory.remove()
            raise
        order = {
            "spec": spec.model_copy(update={"setup": (), "env": {}, "ttl_s": None}),
            "placement": own,
            "sandbox_id": uuid4().hex[:12],
            "max_age_s": self._size.max_age_s,
        }
        await start_supervisor(_MODULE, directory, lock, order, secrets=self._secrets, wait=False)

    async def drain(self, *, workspaces_in: Path | None = None, patience_s: float = 0.0) -> int:
        """End sandboxes that wait for a run, not those that runs use; return how many.

        Args:
            workspaces_in: End only those for runs on workspaces below this directory; None: all.
            patience_s: How long to wait for those still coming up, as their workspace is unknown.
        """
        await self.sweep()
        ended, deadline = 0, time.monotonic() + patience_s
        while True:
            is_known = True
            for directory, state in self.waiting():
                if workspaces_in is None:
                    ended += await _end_unless_taken(directory)
                elif state is None:
                    is_known = False
                elif state.workspace is not None and Path(state.workspace).is_relative_to(workspaces_in):
                    ended += await _end_unless_taken(directory)
            if is_known or time.monotonic() > deadline:
                return ended
            await anyio.sleep(_LOOK_S)

    async def sweep(self) -> int:
        """Remove what dead supervisors left behind; return how many there were."""
        swept = 0
        for directory in list_directories(self._folder):
            if directory.is_alive():
                continue
            with suppress(RingfenceError):
                state = directory.read_state()
                if state is not None:
                    await get_backend(state.facts.backend).remove_leftovers(frozenset({state.sandbox_id}))
            directory.remove_if_dead()
            swept += 1
        await anyio.to_thread.run_sync(remove_remnants, self._folder)
        return swept

    def counts(self) -> Counts:
        """The pool's counts."""
        return read_counts(self._folder)

    def waiting(self) -> list[tuple[SandboxDirectory, SupervisorState | None]]:
        """Living sandboxes that are not taken, each with its state; None for those still coming up."""
        alive = (each for each in list_directories(self._folder) if each.is_alive() and not _is_taken(each))
        return [(directory, _state_of(directory)) for directory in alive]


# --- adoption


def take_ready(directory: SandboxDirectory) -> SupervisorState | None:
    """Claim a warm sandbox that is ready and return its state; None if it cannot be claimed.

    Of all callers that ever try, only one succeeds.
    """
    state = _state_of(directory) if directory.is_alive() else None
    return state if state is not None and state.end is None and _take(directory) else None


def _take(directory: SandboxDirectory) -> bool:
    try:
        taken = directory.path / _TAKEN
        os.close(os.open(taken, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _is_taken(directory: SandboxDirectory) -> bool:
    return (directory.path / _TAKEN).exists()


async def _end_unless_taken(directory: SandboxDirectory) -> bool:
    return _take(directory) and await end_sandbox(directory)


def _state_of(directory: SandboxDirectory) -> SupervisorState | None:
    try:
        return directory.read_state()
    except RingfenceError:
        return None  # of another version: it ends when it reaches its age limit


async def _uploaded(
    directory: SandboxDirectory,
    state: SupervisorState,
    spec: SandboxSpec,
    placement: Placement,
    stack: AsyncExitStack,
) -> Upload | None:
    """Upload a run's workspace to the volume of a warm sandbox, which is entered on `stack`; None if it is mounted.

    Raises:
        SandboxError: It is no longer available.
    """
    if placement.upload == "none":
        return None
    launch = Launch(state.sandbox_id, spec, placement, guest_arguments())
    try:
        volume = await WarmVolume.open(directory, state)
        return await stack.enter_async_context(uploaded_to(volume, launch))
    except InfrastructureFault as exc:
        raise SandboxError(f"the volume of sandbox {state.sandbox_id} cannot be used: {exc}") from exc


@asynccontextmanager
async def _adopted(
    directory: SandboxDirectory,
    state: SupervisorState,
    spec: SandboxSpec,
    placement: Placement,
    upload: Upload | None,
) -> AsyncIterator[Sandbox]:
    """Connect to a warm sandbox as the run's own; it is dead when the context is left.

    Raises:
        SandboxError: It is no longer available.
    """
    try:
        stream = await directory.connect()
        await stream.send(frames.encode_frame(ADOPT))
    except (OSError, *LOST) as exc:
        raise SandboxError(f"no supervisor answers in {str(directory.path)!r}: {exc}") from exc
    volume = upload.volume if upload is not None and isinstance(upload.volume, WarmVolume) else None
    fence = WarmFence(stream, directory, state, volume)
    if upload is not None:
        fence.facts = replace(fence.facts, notes=(*fence.facts.notes, *upload.notes))
    sandbox = Sandbox(
        fence,
        spec,
        placement,
        sandbox_id=state.sandbox_id,
        chosen_because=f"{state.chosen_because}; warm from the pool, {state.age_s:.0f} s old",
        peer="running guest",
        upload=upload,
    )
    async with sandbox.running():
        yield sandbox


async def drain_pool(workspaces_in: Path) -> None:
    """Close the sandboxes that the user's pool keeps for workspaces below a directory.

    It takes no longer than 30 seconds; sandboxes that cannot be closed end when they reach their age limit.
    """
    folder = state_dir() / "pool"
    if not folder.is_dir():
        return
    with anyio.move_on_after(_DRAIN_TIMEOUT_S, shield=True), suppress(RingfenceError, OSError):
        directory = await anyio.to_thread.run_sync(workspaces_in.resolve)
        await Pool(folder, PoolSize(0, 0.0)).drain(workspaces_in=directory, patience_s=_DRAIN_PATIENCE_S)


class WarmFence(SupervisedFence):
    """A fence that a warm sandbox's supervisor holds; the run that adopted it talks to the guest directly."""

    def __init__(
        self,
        stream: ByteStream,
        directory: SandboxDirectory,
        state: SupervisorState,
        volume: WarmVolume | None,
    ) -> None:
        super().__init__(stream, directory, state)
        self._volume = volume

    async def kill(self) -> str | None:
        """Close the connection and wait until everything inside is dead; the supervisor is then gone, too.

        It stays where it has a volume, until that is removed.

        Raises:
            InfrastructureFault: The supervisor does not end.
        """
        await super().kill()
        if self._volume is not None:
            return await self._volume.sandbox_end()
        await ensure_exit(self.directory, self.state)
        return None

    async def usage(self) -> Usage:
        """Usage as the fence reports it to the supervisor."""
        with suppress(OSError, ValueError, TypeError, *LOST), anyio.move_on_after(_USAGE_S):
            async with await self.directory.connect() as stream:
                await stream.send(frames.encode_frame(USAGE))
                reply = await stream.receive()
            return Usage(**json.loads(reply[frames.HEADER.size :]))
        return Usage()
