"""Holds a workspace in a volume of an engine that does not see this machine's files.

The volume is reached through a second container, which is created and never started. So the engine reads what the
agent wrote when all of its processes are dead, even if the sandbox did not end in order; and the volume's own directory
can be given to the sandbox's user, which no process in the sandbox could do.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import aiohttp
import anyio
import anyio.lowlevel
import anyio.to_thread

from ringfence.errors import LimitReached
from ringfence.sandbox.base import Volume
from ringfence.sandbox.docker.client import Engine, EngineError
from ringfence.sandbox.docker.create import volume_mount
from ringfence.sandbox.tar.stream import TOP

_FOLDER = "/carried"
_TRANSFER_S = 1800.0
_STALLED_S = 120.0
_CHUNK = 1024**2


@dataclass(eq=False)
class DockerVolume(Volume):
    """A volume and the container through which it is reached. Owns its session on the engine.

    Made by `make`; `remove` it, which also ends the session.
    """

    engine: Engine
    name: str
    container: str
    uid: int
    gid: int

    @classmethod
    async def make(
        cls, engine: Engine, name: str, *, image: str, labels: Mapping[str, str], uid: int, gid: int
    ) -> "DockerVolume":
        """Make an empty volume.

        Args:
            engine: The engine that holds it.
            name: Name of the volume, and part of the container's name.
            image: An image's digest; none of its programs is run.
            labels: Labels for the volume and the container.
            uid: As `Volume`.
            gid: As `Volume`.

        Raises:
            EngineError: The engine refuses; nothing is left behind.
        """
        asked = {"Name": name, "Driver": "local", "Labels": dict(labels)}
        with anyio.CancelScope(shield=True):  # the engine would create it anyway
            await engine.call(f"create volume {name!r}", "POST", "/volumes/create", json=asked)
        try:
            await anyio.lowlevel.checkpoint()
            container = await engine.create(_never_run(name, image, labels), carrier_name(name))
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(EngineError):
                await engine.remove_volume(name)
            raise
        return cls(engine, name, container, uid, gid)

    async def put(self, file: BinaryIO) -> None:
        """Unpack a tar file (`PUT /containers/{id}/archive`, Docker Engine API 1.41)."""
        await self.engine.call(
            "upload the workspace to the engine",
            "PUT",
            f"/containers/{self.container}/archive",
            params={"path": _FOLDER, "noOverwriteDirNonDir": "true"},
            data=file,
            headers={"Content-Type": "application/x-tar"},
            timeout_s=_TRANSFER_S,
        )

    async def get(self, file: BinaryIO, *, limit_bytes: int) -> None:
        """Write its contents to a tar file (`GET /containers/{id}/archive`)."""
        size = 0
        async with self.engine.stream(
            "download the workspace from the engine",
            "GET",
            f"/containers/{self.container}/archive",
            params={"path": f"{_FOLDER}/{TOP}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_read=_STALLED_S),
            timeout_s=_TRANSFER_S,
        ) as content:
            async for chunk in content.iter_chunked(_CHUNK):
                size += len(chunk)
                if size > limit_bytes:
                    raise LimitReached("disk", allowed=limit_bytes, used=size)
                await anyio.to_thread.run_sync(file.write, chunk)

    async def remove(self) -> None:
        """Remove the volume and the container; anything that cannot be removed now is found later by its labels."""
        with suppress(EngineError):
            await self.engine.remove(self.container)
            await self.engine.remove_volume(self.name)
        await self.engine.aclose()


def carrier_name(name: str) -> str:
    """The name of the container through which a volume is reached."""
    return f"{name}-carrier"


def _never_run(volume: str, image: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "Image": image,
        "Entrypoint": ["/nothing"],
        "Cmd": [],
        "Labels": dict(labels),
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "LogConfig": {"Type": "none"},
            "Mounts": [volume_mount(volume, f"{_FOLDER}/{TOP}", labels, read_only=False)],
        },
    }
