"""Runs attacks one after the other, and reports their results."""

import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError, UsageError
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.standalone import open_for_sandbox
from ringfence.testing.attack import (
    commits,
    exhaustion,
    host_files,
    kernel_files,
    lifetime,
    network,
    privileges,
    processes,
    system_calls,
    workspace_files,
)
from ringfence.testing.attack.attack import Attack, AttackResult, OpenSandbox, Scene, Verdict

_DEADLINE_S = 150.0

ATTACKS: tuple[Attack, ...] = (
    *system_calls.ATTACKS,
    *processes.ATTACKS,
    *privileges.ATTACKS,
    *kernel_files.ATTACKS,
    *network.ATTACKS,
    *host_files.ATTACKS,
    *workspace_files.ATTACKS,
    *commits.ATTACKS,
    *lifetime.ATTACKS,
    *exhaustion.ATTACKS,
)
"""All attacks."""


@asynccontextmanager
async def open_beside(spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    """Open a sandbox that takes no lock on its workspace, since other sandboxes of the suite write to it, too."""
    async with (
        open_for_sandbox(spec, "attack", state_dir(), is_locked=False) as opened,
        Sandbox.start(spec, placement=opened.placement) as sandbox,
    ):
        yield sandbox


async def run_attacks(
    open_sandbox: OpenSandbox, workspace: Path, names: Sequence[str] | None = None
) -> list[AttackResult]:
    """Try to break the promises of a fence. A promise that cannot be checked counts as not held.

    Args:
        open_sandbox: Opens a new sandbox, with the same spec each time, on `workspace`, where several are open at
            once: `open_beside`.
        workspace: The workspace on the host: a scratch directory of its own, in a writable directory. Attacks plant
            files in it and beside it, and do not clean up.
        names: The attacks to run, in this order; None: all.

    Raises:
        UsageError: There is no attack of that name.
        SandboxStartFailed: No sandbox can be opened at all.
    """
    chosen = _choose(names)
    outside = workspace.parent / f"ringfence-outside-{secrets.token_hex(4)}"
    outside.mkdir()
    outside.chmod(0o777)
    try:
        async with AsyncExitStack() as stack:
            shared = await stack.enter_async_context(open_sandbox())
            results = []
            for attack in chosen:
                result, is_alive = await _carry_out(attack, Scene(open_sandbox, workspace, outside, shared))
                results.append(result)
                if not is_alive:
                    await stack.aclose()
                    shared = await stack.enter_async_context(open_sandbox())
            return results
    finally:
        shutil.rmtree(outside, ignore_errors=True)


def _choose(names: Sequence[str] | None) -> list[Attack]:
    if names is None:
        return list(ATTACKS)
    known = {attack.name: attack for attack in ATTACKS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"no attack is called {unknown[0]!r}; known: {', '.join(known)}")
    return [known[name] for name in names]


async def _carry_out(attack: Attack, scene: Scene) -> tuple[AttackResult, bool]:
    """Run an attack; return its result, and whether the shared sandbox is still alive."""
    verdict, is_alive = await _verdict(attack, scene)
    return AttackResult(attack.name, attack.group, verdict.held, verdict.detail), is_alive


async def _verdict(attack: Attack, scene: Scene) -> tuple[Verdict, bool]:
    if not attack.is_harmless and not scene.shared.facts.is_fence:
        return Verdict(
            held=False, detail="not tried: there is no fence, and it would harm this machine"
        ), True
    try:
        with anyio.fail_after(_DEADLINE_S):
            verdict = await attack.carry_out(scene)
        return verdict, attack.needs_own or await _is_alive(scene.shared)
    except TimeoutError:
        return Verdict(held=False, detail=f"no verdict within {_DEADLINE_S:g} s"), attack.needs_own
    except (RingfenceError, OSError) as exc:
        return Verdict(held=False, detail=f"could not be checked: {exc}"), attack.needs_own


async def _is_alive(sandbox: Sandbox) -> bool:
    try:
        return (await sandbox.run(["true"], timeout_s=10)).ok
    except RingfenceError:
        return False
