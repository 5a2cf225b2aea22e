"""Sandboxes started ahead for a loop: one of each kind that its turns and checks take, and none after its end."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread

from ringfence.config import Effective
from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError
from ringfence.job.asked.agent import agent_request
from ringfence.job.asked.sandbox import check_image, pool_of, secrets_of, spec_of
from ringfence.job.clients import with_client
from ringfence.job.continuing import Continuation
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.who import effective_for
from ringfence.loop.repository import Slot
from ringfence.loop.settings import RoleName
from ringfence.loop.store.rows import Spent
from ringfence.removal import remove_tree
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.registry import why_unseen
from ringfence.sandbox.workspace.prepare import prepare

_COMING_S = 10.0
_END_S = 30.0
_ROLES: tuple[RoleName, ...] = ("test_writer", "implementor", "reviewer", "judge")


async def warm_up(loop: Loop, commit: str) -> int:
    """Ask for the sandboxes of a loop's first steps, before anybody needs them; returns how many were asked for.

    What cannot be started ahead is no reason for a loop to fail: its steps start their own.

    Args:
        loop: It; nobody works in its clones yet.
        commit: Where its stories begin.
    """
    size = pool_of(loop.effective.settings)
    if size is None:
        return 0
    asked = 0
    for number in range(loop.settings.parallel):
        slot = await loop.repository.slot(number)
        await loop.repository.reset(slot, commit)
        with suppress(RingfenceError, OSError):
            asked += await _warm_up_on(loop, slot, size)
    return asked


async def _warm_up_on(loop: Loop, slot: Slot, size: PoolSize) -> int:
    """For one of its clones."""
    workspace = await anyio.to_thread.run_sync(slot.inside.resolve)
    pool = Pool(state_dir() / "pool", size, secrets=secrets_of(loop.effective.settings))
    asked, seen = 0, list[SandboxSpec]()
    for each, is_agent in _kinds(loop):
        spec = await _spec(each, workspace, is_agent=is_agent)
        if spec.backend != "host" and spec not in seen:
            seen.append(spec)
            asked += await _ask(pool, spec, each, loop.place.directory / "warming")
    return asked


def _kinds(loop: Loop) -> Iterator[tuple[Effective, bool]]:
    """The configurations of its checks and of its roles on their first attempt, and whether it is an agent's."""
    yield loop.effective, False
    for role in _ROLES:
        if role != "reviewer" or loop.settings.review:
            yield effective_for(loop.effective, loop.settings, role, attempt=1, spent=Spent()), True


async def _spec(effective: Effective, workspace: Path, *, is_agent: bool) -> SandboxSpec:
    """What a run asks for, but for what a sandbox that was started ahead is told later."""
    spec = spec_of(effective, workspace)
    check_image(spec)
    if is_agent and effective.settings.run.runtime != "api":
        _, spec = await with_client(agent_request("", effective, Continuation()), spec)
    return spec.model_copy(update={"egress": type(spec.egress)()})


async def _ask(pool: Pool, spec: SandboxSpec, effective: Effective, folder: Path) -> int:
    """Have one started, on directories like those of a run, which are made for this and taken away again."""
    assert spec.workspace is not None
    name = f"warm-{uuid4().hex[:12]}"
    try:
        prepared = await prepare(
            spec.workspace, spec.mode, run=name, run_dir=folder, state=state_dir(),
            protect=effective.settings.sandbox.protect, unseen=await why_unseen(spec),
        )  # fmt: skip
        if prepared.placement.carry != "none":
            return 0
        return await pool.refill(spec, prepared.placement, folder)
    finally:
        with anyio.CancelScope(shield=True), suppress(FileNotFoundError):
            await anyio.to_thread.run_sync(remove_tree, folder)


async def cool_down(clones: Path) -> None:
    """End what waits for a loop's next steps, as there are none."""
    folder = state_dir() / "pool"
    if not folder.is_dir():
        return
    with anyio.move_on_after(_END_S, shield=True), suppress(RingfenceError, OSError):
        place = await anyio.to_thread.run_sync(clones.resolve)
        await Pool(folder, PoolSize(0, 0.0)).drain_of(place, patience_s=_COMING_S)
