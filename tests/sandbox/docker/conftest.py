"""Fixtures for container engines: an image, configurations without an engine, a connection that can be cut off."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ringfence.sandbox import Placement, SandboxSpec
from ringfence.sandbox.base import Launch
from ringfence.sandbox.container.hardened_container import HardenedContainer, ImageFacts, harden, plan_limits
from ringfence.sandbox.docker.client import EngineFacts
from ringfence.sandbox.docker.create import configuration

SOCKET = "/var/run/docker.sock"


@pytest.fixture
def image(images: Callable[[str], str | None]) -> str:
    """The name of an image that Docker has; skips the test without an engine."""
    found = images("docker")
    assert found is not None
    return found


def engine_facts(**changes: object) -> EngineFacts:
    """A rootful Docker on control groups of version 2."""
    facts: dict[str, object] = {
        "version": "28.2",
        "api_version": "1.50",
        "is_podman": False,
        "is_rootless": False,
        "has_user_namespace": False,
        "cgroup_version": 2,
        "limits": frozenset({"memory", "cpus", "pids"}),
        "has_cpuset": True,
        "has_apparmor": False,
        "runtimes": frozenset({"runc", "runsc"}),
        "default_runtime": "runc",
        "processors": 8,
        "architecture": "x86_64",
    }
    return EngineFacts(**{**facts, **changes})  # type: ignore[arg-type]


FILES = {"/etc/hosts": Path("/state/hosts")}


def hardened(
    spec: SandboxSpec | None = None,
    placement: Placement | None = None,
    *,
    facts: EngineFacts | None = None,
    image: ImageFacts | None = None,
    runtime: str | None = None,
    volume: str | None = None,
) -> HardenedContainer:
    """The configuration of a hardened container, made without an engine."""
    spec, facts = spec or SandboxSpec(), facts or engine_facts()
    placement = placement or Placement(1500, 1500, Path("/w"), Path("/w"))
    limits = plan_limits(
        spec, facts.unset_limits, is_gvisor=facts.is_gvisor(runtime), processors=facts.processors, key=0
    )
    return harden(
        Launch("abc", spec, placement, ("-c", "loader")),
        image or ImageFacts("sha256:1", "a:1", {}, ()),
        limits,
        labels={"ringfence.sandbox": "abc"},
        guest_filter=b"filter",
        runtime=runtime,
        volume=volume,
    )


def asked(*arguments: Any, facts: EngineFacts | None = None, **named: Any) -> dict[str, Any]:
    """The request that creates a container. Arguments are those of `hardened`."""
    facts = facts or engine_facts()
    return configuration(hardened(*arguments, facts=facts, **named), facts, FILES)


class Relay:
    """A socket that forwards all connections to the engine's until it is cut off."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.connections = 0
        self._path = path
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_unix_connection(SOCKET)
        self._writers += [writer, far_writer]
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    async def cut(self) -> None:
        """Close the socket and all connections, as if the engine was gone."""
        assert self._server is not None
        self._server.close()
        self._path.unlink(missing_ok=True)
        for writer in self._writers:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()  # TLS has no half-closed connections


@asynccontextmanager
async def relayed(folder: Path) -> AsyncIterator[Relay]:
    """A relay to the machine's Docker."""
    relay = Relay(folder / f"{os.getpid()}.sock")
    await relay.start()
    try:
        yield relay
    finally:
        await relay.cut()
