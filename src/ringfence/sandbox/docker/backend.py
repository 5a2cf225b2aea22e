"""Starts the guest as the first process of a hardened container."""

import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import ClassVar

import anyio

from ringfence.errors import PolicyRefused, RingfenceError, SandboxStartFailed
from ringfence.sandbox.base import Backend, Launch, Traits
from ringfence.sandbox.container.hardened_container import (
    HardenedContainer,
    harden,
    plan_limits,
    started_facts,
    unenforced_limits,
)
from ringfence.sandbox.container.labels import container_name, labels_for
from ringfence.sandbox.docker.address import Product
from ringfence.sandbox.docker.attach import AttachStream, attach
from ringfence.sandbox.docker.cleanup import clean_up_once, remember, remove_leftovers
from ringfence.sandbox.docker.client import Engine, EngineError, open_engine
from ringfence.sandbox.docker.create import (
    check_files,
    configuration,
    host_files,
    mismatches,
    parse_image,
    with_ids_inside,
)
from ringfence.sandbox.docker.fence import DockerFence
from ringfence.sandbox.docker.volumes import DockerVolume
from ringfence.sandbox.idmap import mounted_on_host, unmount
from ringfence.sandbox.seccomp import filter_bytes
from ringfence.sandbox.spec import SandboxSpec


class DockerBackend(Backend):
    """A container of a Docker engine: no network, no capabilities, never uid 0, read-only, under limits."""

    name = "docker"
    traits = Traits(needs_image=True)
    product: ClassVar[Product] = "docker"
    runtime: ClassVar[str | None] = None
    """OCI runtime, unless the spec names one."""

    async def unavailable(self, spec: SandboxSpec | None = None) -> RingfenceError | None:
        """Why no engine can be used, and how to start one."""
        if spec is not None and spec.image is None:
            return SandboxStartFailed(
                "it needs an image: name one with --image (or sandbox.image); `ringfence image ls` lists those "
                "that were built, `ringfence image build` builds one"
            )
        try:
            async with await open_engine(self.product, spec.engine if spec else None) as engine:
                _check_runtime(engine, self._runtime(spec))
        except RingfenceError as exc:
            return exc
        return None

    async def examine(self, spec: SandboxSpec) -> Traits:
        """The traits for the spec's engine and runtime."""
        runtime = self._runtime(spec)
        async with await open_engine(self.product, spec.engine) as engine:
            _check_runtime(engine, runtime)
            is_gvisor = engine.facts.is_gvisor(runtime)
            return replace(
                self.traits,
                unseen=engine.unseen,
                unenforced=unenforced_limits(engine.facts.unset_limits, is_gvisor=is_gvisor),
            )

    async def image_id(self, spec: SandboxSpec) -> str | None:
        """The id of the image that a container would be made from now."""
        if spec.image is None:
            return None
        async with await open_engine(self.product, spec.engine) as engine:
            return str((await engine.image(spec.image))["Id"])

    def _runtime(self, spec: SandboxSpec | None) -> str | None:
        return (spec.runtime if spec else None) or self.runtime

    async def make_volume(self, launch: Launch) -> DockerVolume:
        """Make a volume that has the sandbox's labels; the sandbox then uses its session on the engine."""
        async with self._session(launch) as engine:
            launch = with_ids_inside(launch, engine.facts)
            asked = await self._harden(engine, launch)
            return await DockerVolume.make(
                engine,
                container_name(launch.sandbox_id),
                image=asked.image.id,
                labels=asked.labels,
                uid=launch.placement.uid,
                gid=launch.placement.gid,
            )

    async def start(self, launch: Launch) -> "DockerFence":
        """Create a container, check that it is as requested, attach to it, and start it."""
        if launch.placement.uid == 0 or launch.placement.gid == 0:
            raise PolicyRefused("a sandbox never runs as uid or gid 0", rule="no-root")
        began = time.monotonic()
        async with (
            self._session(launch) as engine,
            mounted_on_host(with_ids_inside(launch, engine.facts)) as shown,
        ):
            return await self._start(engine, shown, began)

    @asynccontextmanager
    async def _session(self, launch: Launch) -> AsyncIterator[Engine]:
        """A session for a launch: its volume's, or a new one, which is closed if the code within the context fails."""
        volume = launch.volume if isinstance(launch.volume, DockerVolume) else None
        engine = volume.engine if volume else await open_engine(self.product, launch.spec.engine)
        try:
            if volume is None:
                remember(self.product, launch.spec.engine)  # a later process looks there
                await clean_up_once(engine)
            yield engine
        except BaseException as exc:
            if volume is None:
                await engine.aclose()
            if isinstance(exc, EngineError):
                raise SandboxStartFailed(f"the sandbox did not start: {exc}") from exc
            raise

    async def _start(self, engine: Engine, launch: Launch, began: float) -> "DockerFence":
        """Start a container and attach to its first process; remove the container if that fails."""
        clock = _Clock(began)
        asked = await self._harden(engine, launch)
        clock.lap("connect")
        files = host_files(asked.files) if engine.address.shares_files else {}
        configured = configuration(asked, engine.facts, files)
        container = await engine.create(configured, container_name(launch.sandbox_id))
        stream: AttachStream | None = None
        try:
            clock.lap("create")
            wrong = list(mismatches(configured, await engine.inspect(container)))
            if wrong:
                raise SandboxStartFailed(
                    f"{engine.facts.product} did not make the container as asked: {'; '.join(wrong)}; nothing ran in it"
                )
            stream = await attach(engine.connect_address, container, engine.facts.api_version)
            clock.lap("attach")
            await engine.start(container)
            clock.lap("start")
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(EngineError):
                if stream is not None:
                    await stream.aclose()
                await engine.remove(container)
            raise
        facts = started_facts(
            asked,
            launch,
            backend=self.name,
            engine=engine.facts.product,
            runtime=asked.runtime or engine.facts.default_runtime,
            laps_ms=clock.laps_ms,
        )
        return DockerFence(facts, stream, container, engine, is_engines_owner=launch.volume is None)

    async def _harden(self, engine: Engine, launch: Launch) -> HardenedContainer:
        spec, facts, runtime = launch.spec, engine.facts, self._runtime(launch.spec)
        if spec.image is None:
            raise SandboxStartFailed(
                f"sandbox backend {self.name!r} cannot be used: {await self.unavailable(spec)}"
            )
        _check_runtime(engine, runtime)
        is_gvisor = facts.is_gvisor(runtime)
        image = parse_image(spec.image, await engine.image(spec.image))
        check_files(engine, launch, image, is_gvisor=is_gvisor)
        return harden(
            launch,
            image,
            plan_limits(
                spec,
                facts.unset_limits,
                is_gvisor=is_gvisor,
                processors=facts.processors if facts.has_cpuset else 0,
                key=zlib.crc32(launch.sandbox_id.encode()),
            ),
            labels=labels_for(launch.sandbox_id, launch.run_id, spec.ttl_s, spec.labels),
            guest_filter=filter_bytes(facts.architecture),
            runtime=runtime,
            masks_guest=is_gvisor,
            volume=launch.volume.name if launch.volume else None,
        )

    async def remove_leftovers(self, sandbox_ids: frozenset[str], *, dry_run: bool = False) -> list[str]:
        """Remove leftovers of these sandboxes, and of all whose process is dead, from every engine that was used."""
        mounted = () if dry_run else sandbox_ids
        names = [f"mount of {one}" for one in mounted if await anyio.to_thread.run_sync(unmount, one)]
        return names + await remove_leftovers(self.product, sandbox_ids, dry_run=dry_run)


class PodmanBackend(DockerBackend):
    """A container of Podman's service, rootful or rootless."""

    name = "podman"
    product = "podman"


class GvisorBackend(DockerBackend):
    """A container of a Docker engine on gVisor: its system calls never reach the machine's kernel."""

    name = "gvisor"
    runtime = "runsc"


class _Clock:
    def __init__(self, began: float) -> None:
        self.laps_ms: dict[str, float] = {}
        self._last = began

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps_ms[name] = round((now - self._last) * 1000, 3)
        self._last = now


def _check_runtime(engine: Engine, runtime: str | None) -> None:
    # Podman lists only the runtimes it was started with, and accepts paths.
    if runtime is not None and not engine.facts.is_podman and runtime not in engine.facts.runtimes:
        known = ", ".join(sorted(engine.facts.runtimes))
        raise SandboxStartFailed(
            f"{engine.facts.product} has no runtime {runtime!r}, only {known}; for gVisor install runsc, "
            "run `runsc install` as root and restart the engine"
        )
