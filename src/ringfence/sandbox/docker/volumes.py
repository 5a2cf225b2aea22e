"""Volumes of an engine, and what is put in them and taken out through a container that need not run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import aiohttp
import anyio.to_thread

from ringfence.errors import LimitReached
from ringfence.sandbox.docker.client import Engine

_TRANSFER_S = 1800.0
_STALLED_S = 120.0
_CHUNK = 1024**2


async def create_volume(engine: Engine, name: str, labels: Mapping[str, str]) -> None:
    """Make an empty volume."""
    asked = {"Name": name, "Driver": "local", "Labels": dict(labels)}
    await engine.call(f"create volume {name!r}", "POST", "/volumes/create", json=asked)


async def remove_volume(engine: Engine, name: str) -> None:
    """Remove a volume with what is in it.

    Raises:
        EngineError: It is not there (`is_absent`), or a container has it.
    """
    await engine.call(f"remove volume {name!r}", "DELETE", f"/volumes/{name}")


async def volumes(engine: Engine, labels: Sequence[str]) -> list[Mapping[str, Any]]:
    """Volumes that have all these labels (`name` or `name=value`)."""
    asked = {"filters": json.dumps({"label": list(labels)})}
    found = await engine.call("list volumes", "GET", "/volumes", params=asked)
    return list(found.get("Volumes") or ())


async def put_archive(engine: Engine, container: str, folder: str, file: BinaryIO) -> None:
    """Unpack a tar file in a directory of a container (`PUT /containers/{id}/archive`, Docker Engine API 1.41).

    Owners are those in the file.
    """
    await engine.call(
        "carry the workspace to the engine",
        "PUT",
        f"/containers/{container}/archive",
        params={"path": folder, "noOverwriteDirNonDir": "true"},
        data=file,
        headers={"Content-Type": "application/x-tar"},
        timeout_s=_TRANSFER_S,
    )


async def get_archive(engine: Engine, container: str, path: str, file: BinaryIO, *, limit_bytes: int) -> None:
    """Write what is at a path of a container to a file, as tar (`GET /containers/{id}/archive`).

    Raises:
        LimitReached: It is larger than `limit_bytes`.
        EngineError: It did not come whole.
    """
    size = 0
    async with engine.stream(
        "carry the workspace back from the engine",
        "GET",
        f"/containers/{container}/archive",
        params={"path": path},
        timeout=aiohttp.ClientTimeout(total=None, sock_read=_STALLED_S),
        timeout_s=_TRANSFER_S,
    ) as content:
        async for chunk in content.iter_chunked(_CHUNK):
            size += len(chunk)
            if size > limit_bytes:
                raise LimitReached("disk", allowed=limit_bytes, used=size)
            await anyio.to_thread.run_sync(file.write, chunk)
