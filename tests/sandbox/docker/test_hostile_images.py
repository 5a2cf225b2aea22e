"""Images whose own interpreter is hostile."""

import io
import tarfile
from collections.abc import AsyncIterator

import anyio
import pytest

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.docker.client import open_engine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

_NAME = "localhost/ringfence-test/flood"


@pytest.fixture
async def flooding(image: str) -> AsyncIterator[str]:
    """An image whose interpreter only writes output."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        script = b"#!/bin/sh\nexec yes\n"
        entry = tarfile.TarInfo("python3")
        entry.mode, entry.size = 0o755, len(script)
        tar.addfile(entry, io.BytesIO(script))
    packed.seek(0)
    async with await open_engine() as engine:
        container = await engine.create({"Image": image, "NetworkDisabled": True}, "ringfence-test-flood")
        try:
            path = f"/containers/{container}/archive"
            await engine.call("put", "PUT", path, params={"path": "/usr/local/bin"}, data=packed)
            asked = {"container": container, "repo": _NAME, "tag": "1"}
            await engine.call("commit", "POST", "/commit", params=asked, json={})
        finally:
            await engine.remove(container)
        yield f"{_NAME}:1"
        await engine.remove_image(f"{_NAME}:1")


async def test_a_flood_does_not_keep_its_container_alive(flooding: str) -> None:
    """An engine ends no container whose output is not read, so ringfence closes the connection."""
    async with await open_engine() as engine:
        with anyio.fail_after(15):
            with pytest.raises(SandboxStartFailed, match="frame of"):
                async with Sandbox.start(SandboxSpec(backend="docker", image=flooding), sandbox_id="floods"):
                    pass
            assert await engine.containers(["ringfence.sandbox=floods"]) == []
