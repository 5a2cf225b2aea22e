"""An engine to build on, and what was left of a build."""

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import aiodocker
import pytest

from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.sandbox.docker.client import Engine, open_engine
from ringfence.sandbox.docker.image import BuildOptions, Target, find_image
from ringfence.sandbox.docker.image.build import build_link
from ringfence.sandbox.docker.image.plan import Plan
from ringfence.sandbox.docker.image.recipe import Inputs

Run = Callable[..., Awaitable[tuple[int, str]]]


def lacking(reason: str) -> None:
    """Skip; fail where engines have to be there."""
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
    """The name of an image of ours that is there."""

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
        container = await engine.docker.containers.create(
            {
                "Image": name,
                "User": user,
                "Cmd": ["bash", "-euc", script],
                "HostConfig": {**hardening, **host},
            }
        )
        try:
            await container.start()
            code = (await container.wait(timeout=90))["StatusCode"]
            return code, "".join(await container.log(stdout=True, stderr=True))
        finally:
            await container.delete(force=True)

    return go


class Trial:
    """Builds of images that are not kept, and what they leave."""

    def __init__(self, engine: Engine, below: str) -> None:
        self.engine = engine
        self.below = below
        self.told: list[str] = []
        self.label = f"ringfence.test={uuid.uuid4().hex}"

    def inputs(self, *steps: str, below: str | None = None) -> Inputs:
        """An image of some instructions."""
        body = "\n".join((f"LABEL {self.label}", *steps, ""))
        return Inputs("test", below or self.below, self.label, body, {})

    async def build(self, link: Inputs, tell: Callable[[str], None] | None = None) -> None:
        """Build it."""
        plan = Plan("a test", None, (link,), {})
        await build_link(self.engine, link, plan, options=BuildOptions(), tell=tell or self.told.append)

    async def left(self) -> list[Mapping[str, Any]]:
        """Containers and nameless images of these builds."""
        filters = {"label": [self.label], "dangling": ["true"]}
        images = await self.engine.docker.images.list(filters=filters)
        return [*images, *await self.engine.containers([self.label])]


@pytest.fixture
async def trial(engine: Engine, image_of: Callable[[Target], Awaitable[str]]) -> AsyncIterator[Trial]:
    """Builds on the base, removed afterwards."""
    begun = Trial(engine, await image_of(Target.BASE))
    yield begun
    for image in await engine.docker.images.list(filters={"label": [begun.label]}):
        for name in image["RepoTags"] or [image["Id"]]:
            with suppress(aiodocker.DockerError):
                await engine.docker.images.delete(name)
