"""An engine to build images on, and what a build left there."""

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import pytest

from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.sandbox.docker.client import Engine, EngineError, open_engine
from ringfence.sandbox.docker.image.build import build
from ringfence.sandbox.docker.image.recipe import Recipe, Target
from ringfence.sandbox.docker.image.store import find_image

Run = Callable[..., Awaitable[tuple[int, str]]]


def lacking(reason: str) -> None:
    """Skip the test, or fail it where engines have to be there."""
    if os.environ.get("TEST_REQUIRES_ENGINES"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """A Docker engine."""
    try:
        opened = await open_engine()
    except SandboxStartFailed as exc:
        lacking(f"{exc}; scripts/engines.sh starts one")
    async with opened:
        yield opened


@pytest.fixture
def image_of(engine: Engine) -> Callable[[Target], Awaitable[str]]:
    """The name of an image of ours that the engine has."""

    async def find(target: Target) -> str:
        try:
            return (await find_image(engine, target)).name
        except UsageError as exc:
            lacking(str(exc))
            raise

    return find


@pytest.fixture
def run(engine: Engine, image_of: Callable[[Target], Awaitable[str]]) -> Run:
    """Run a shell script in a container of an image, without a network and, unless asked, any capability."""

    async def go(target: Target, script: str, *, user: str = "", **host: Any) -> tuple[int, str]:
        hardening: dict[str, Any] = {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": "", "/home/agent": "uid=1000"},
        }
        name = await image_of(target)
        container = await engine.create(
            {
                "Image": name,
                "User": user,
                "Cmd": ["bash", "-euc", script],
                "HostConfig": {**hardening, **host},
            },
            f"ringfence-test-{uuid.uuid4().hex}",
        )
        try:
            await engine.start(container)
            with anyio.fail_after(90):
                code = await engine.wait(container)
            asked = {"stdout": "1", "stderr": "1"}
            async with engine.stream("read", "GET", f"/containers/{container}/logs", params=asked) as log:
                return code, _text(await log.read())
        finally:
            await engine.remove(container)

    return go


def _text(log: bytes) -> str:
    """A log without the 8 bytes before each piece, whose last four are its length."""
    pieces = []
    while log:
        end = 8 + int.from_bytes(log[4:8])
        pieces.append(log[8:end])
        log = log[end:]
    return b"".join(pieces).decode()


SOURCE = 'a "test" of $HOME'
"""What a Dockerfile would take for something else unless it is quoted."""


class Trial:
    """Builds of images that are removed afterwards, and checks of what they leave."""

    def __init__(self, engine: Engine, below: str) -> None:
        self.engine = engine
        self.below = below
        self.told: list[str] = []
        self.label = f"ringfence.test={uuid.uuid4().hex}"

    def recipe(self, *steps: str, below: str | None = None) -> Recipe:
        """An image of some instructions."""
        stage = "\n".join(("ARG BASE", "FROM ${BASE} AS test", f"LABEL {self.label}", *steps, ""))
        return Recipe("test", SOURCE, below or self.below, stage, {})

    async def build(self, recipe: Recipe, tell: Callable[[str], None] | None = None) -> None:
        """Build an image."""
        await build(self.engine, recipe, authorities=0, rebuild=False, report=tell or self.told.append)

    async def left(self) -> list[Mapping[str, Any]]:
        """Containers and nameless images that these builds left."""
        images = await self.engine.images({"label": [self.label], "dangling": ["true"]})
        return [*images, *await self.engine.containers([self.label])]


@pytest.fixture
async def trial(engine: Engine, image_of: Callable[[Target], Awaitable[str]]) -> AsyncIterator[Trial]:
    """Builds on the base image, removed afterwards."""
    begun = Trial(engine, await image_of(Target.BASE))
    yield begun
    for image in await engine.images({"label": [begun.label]}):
        for name in image["RepoTags"] or [image["Id"]]:
            with suppress(EngineError):
                await engine.remove_image(name)
