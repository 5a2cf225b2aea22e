"""Opens the sandboxes of a run, each for one purpose and with the run's id, and records them.

The gate is imported only if something is granted, as most commands have no network access.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import anyio

from ringfence.config.egress import Egress
from ringfence.config.paths import state_dir
from ringfence.errors import SandboxDied
from ringfence.events import SandboxCreated, SandboxDestroyed
from ringfence.frozen import frozen
from ringfence.job.command import command_ended
from ringfence.job.credentials import inject
from ringfence.job.recorder import Recorder
from ringfence.job.request import Purpose, RunRequest
from ringfence.job.store import JobStore
from ringfence.journal import run_dir
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.policy import effective_policy

if TYPE_CHECKING:
    from ringfence.egress.gate import Gate
    from ringfence.egress.injection.injector import Injector
    from ringfence.job.model_access import ModelAccess

_RECORD_S = 10.0
_WITHOUT_SECRETS = frozenset({"export", "verify"})
_INJECTABLE = frozenset({"agent", "exec", "shell", "terminal"})
_WITH_PROXY = frozenset({"standing", "terminal"})
"""Purposes with a proxy even if no host is granted, as hosts may be granted later, and refusals are recorded."""
_CACHES = "/tmp/ringfence-caches"  # noqa: S108 -- inside
_CACHES_OF_CHECKS = {
    "PYTHONPYCACHEPREFIX": f"{_CACHES}/python",
    "MYPY_CACHE_DIR": f"{_CACHES}/mypy",
    "RUFF_CACHE_DIR": f"{_CACHES}/ruff",
}
"""Environment that puts a check's caches outside the workspace, so that they are not changes of the run, and a cache
that the run left in the workspace is not loaded."""
_Use = Purpose | Literal["export", "verify"]


@frozen
class Sandboxes:
    """Opens the sandboxes of one run."""

    request: RunRequest
    job_id: str
    store: JobStore
    recorder: Recorder
    gates: "dict[str, Gate]"
    """The gates of the open sandboxes, by sandbox id."""
    wait_for_probe: Callable[[], Awaitable[None]]
    """Returns unless the agent's credential is refused; awaited before the first command."""
    is_fence: bool
    """Whether the sandboxes are fences: only these come from a pool and have a proxy."""
    last_notes: list[str] = field(default_factory=list)
    """Notes for the user, from sandboxes that have ended."""

    @asynccontextmanager
    async def opened(self, purpose: _Use, placement: Placement) -> AsyncIterator[Sandbox]:
        """Open a sandbox for `purpose`; its name is stored before it exists, so that a crash leaves a trace.

        Args:
            purpose: Its purpose.
            placement: The placement of the workspace.
        """
        sandbox_id = uuid4().hex[:12]
        self.store.add_sandbox(self.job_id, sandbox_id)
        began = time.monotonic()
        reason = "closed"
        is_recorded = False
        opened: Sandbox | None = None
        try:
            injector = None if purpose in _WITHOUT_SECRETS else await self._injector()
            access = None if purpose in _WITHOUT_SECRETS else self.request.model_access
            spec = self._spec_with_access(purpose, injector, access)
            async with self._opening(spec, placement, purpose, sandbox_id) as sandbox:
                opened = sandbox
                if sandbox.id != sandbox_id:
                    sandbox_id = sandbox.id
                    self.store.add_sandbox(self.job_id, sandbox_id)
                is_recorded = True
                await self._record(sandbox, spec, purpose, placement, started_in_s=time.monotonic() - began)
                if purpose in _INJECTABLE:
                    await inject(self.request.injected, sandbox, self.recorder.emit)
                async with (
                    access.gateway.opened(self.recorder.emit) if access is not None else nullcontext(),
                    self._opened_gate(sandbox, spec, purpose, injector, access) as gate,
                ):
                    if gate is not None:
                        self.gates[sandbox.id] = gate
                    await self.wait_for_probe()
                    async for result in sandbox.set_up(spec.setup):
                        ended = command_ended(sandbox, result.argv, result, result.stdout, result.stderr)
                        await self.recorder.emit(ended)
                    yield sandbox
        except SandboxDied as exc:
            reason = exc.reason
            raise
        finally:
            self.gates.pop(sandbox_id, None)
            self.last_notes.extend(opened.last_notes if opened else ())
            if is_recorded:
                with anyio.move_on_after(_RECORD_S, shield=True):
                    await self.recorder.emit(SandboxDestroyed(sandbox_id=sandbox_id, reason=reason))

    def _opened_gate(
        self,
        sandbox: Sandbox,
        spec: SandboxSpec,
        purpose: _Use,
        injector: "Injector | None",
        access: "ModelAccess | None",
    ) -> "AbstractAsyncContextManager[Gate | None]":
        if not _has_gate(spec) and not self._has_proxy(purpose):
            return nullcontext()
        from ringfence.egress.gate import opened_gate

        return opened_gate(
            sandbox,
            spec,
            self.recorder.emit,
            gateway=access.gateway if access is not None else None,
            with_proxy=self._has_proxy(purpose),
            injector=injector,
        )

    def _has_proxy(self, purpose: _Use) -> bool:
        """Whether there is a proxy even if no host is granted: refusals are recorded, and can become questions."""
        asks = purpose == "agent" and "host" in self.request.asks and self.is_fence
        return purpose in _WITH_PROXY or asks

    async def _injector(self) -> "Injector | None":
        spec = self.request.spec
        if not spec.egress.swap:
            return None
        from ringfence.egress.injection.injector import prepare_injector

        leases = {lease.name: lease for lease in self.request.leases}
        return await prepare_injector(spec.egress, leases, spec.env)

    def _spec_with_access(
        self, purpose: _Use, injector: "Injector | None", access: "ModelAccess | None"
    ) -> SandboxSpec:
        spec = _spec_for(self.request.spec, purpose, with_proxy=self._has_proxy(purpose))
        if injector is not None:
            spec = spec.model_copy(update={"env": {**injector.environment, **spec.env}})
        if access is None or not spec.egress.wants_model:
            return spec
        from ringfence.egress.gateway.provider import environment_inside

        return spec.model_copy(update={"env": {**environment_inside(access.gateway.kinds), **spec.env}})

    def _opening(
        self, spec: SandboxSpec, placement: Placement, purpose: _Use, sandbox_id: str
    ) -> AbstractAsyncContextManager[Sandbox]:
        request = self.request
        is_first = purpose not in ("export", "verify")
        if request.pool is None or not self.is_fence or not is_first:
            return Sandbox.start(spec, placement=placement, sandbox_id=sandbox_id, run_id=self.job_id)
        from ringfence.sandbox.pool.pool import Pool

        pool = Pool(state_dir() / "pool", request.pool, secrets=request.secret_values)
        return pool.opened(spec, placement, run_dir(self.job_id), sandbox_id=sandbox_id)

    async def _record(
        self,
        sandbox: Sandbox,
        spec: SandboxSpec,
        purpose: _Use,
        placement: Placement,
        *,
        started_in_s: float,
    ) -> None:
        await self.recorder.emit(
            SandboxCreated(
                sandbox_id=sandbox.id,
                backend=sandbox.facts.backend,
                purpose=purpose,
                chosen_because=sandbox.chosen_because,
                image=sandbox.facts.image,
                policy=effective_policy(spec, placement, sandbox.facts),
                enforced=dict(sandbox.facts.enforced),
                started_in_ms=round(started_in_s * 1000, 3),
                engine=sandbox.facts.engine,
                engine_ms=dict(sandbox.facts.laps_ms),
            )
        )


def _has_gate(spec: SandboxSpec) -> bool:
    """Whether anything outside can be reached from a sandbox."""
    return bool(spec.forward or spec.engine_access or spec.egress.allow or spec.egress.swap)


def _spec_for(spec: SandboxSpec, purpose: _Use, *, with_proxy: bool) -> SandboxSpec:
    """The user's spec for `purpose`: an export has no network access, a check can only read from the engine."""
    if purpose == "export":
        nothing: dict[str, object] = {
            "setup": (),
            "forward": (),
            "engine_access": None,
            "egress": Egress(),
            "env": {},
        }
        return spec.model_copy(update=nothing)
    env = spec.env
    if purpose == "verify":
        changes: dict[str, object] = {"egress": spec.egress.model_copy(update={"swap": ()})}
        if spec.engine_access is not None:
            changes["engine_access"] = spec.engine_access.model_copy(update={"allow": ()})
        spec = spec.model_copy(update=changes)
        env = {**_CACHES_OF_CHECKS, **env}
        env["PYTEST_ADDOPTS"] = f"-o cache_dir={_CACHES}/pytest {env.get('PYTEST_ADDOPTS', '')}".strip()
    if with_proxy or _has_gate(spec):
        from ringfence.egress.environment import environment_for

        env = environment_for(spec, env, with_proxy=with_proxy)
    return spec.model_copy(update={"env": env})
