"""Volumes of an engine, and what is put in them and taken out through a container that need not run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import aiohttp
import anyio.to_thread

from ringfence.errors import LimitReached
from ringfence.sandbox.docker.client import Engine, engine_errors

_TRANSFER_S = 1800.0
_STALLED_S = 120.0
_CHUNK = 1024**2


async def create_volume(engine: Engine, name: str, labels: Mapping[str, str]) -> None:
    """Make an empty volume."""
    async with engine_errors(f"create volume {name!r}"):
        asked = {"Name": name, "Driver": "local", "Labels": dict(labels)}
        await engine.docker._query_json("volumes/create", "POST", data=json.dumps(asked).encode())


async def remove_volume(engine: Engine, name: str) -> None:
    """Remove a volume with what is in it.

    Raises:
        EngineError: It is not there (`is_absent`), or a container has it.
    """
    async with engine_errors(f"remove volume {name!r}"), engine.docker._query(f"volumes/{name}", "DELETE"):
        pass


async def volumes(engine: Engine, labels: Sequence[str]) -> list[Mapping[str, Any]]:
    """Volumes that have all these labels (`name` or `name=value`)."""
    async with engine_errors("list volumes"):
        found = await engine.docker._query_json(
            "volumes", params={"filters": json.dumps({"label": list(labels)})}
        )
        return list(found.get("Volumes") or ())


async def put_archive(engine: Engine, container: str, folder: str, file: BinaryIO) -> None:
    """Unpack a tar file in a directory of a container (`PUT /containers/{id}/archive`, Docker Engine API 1.41).

    Owners are those in the file.
    """
    async with (
        engine_errors("carry the workspace to the engine", timeout_s=_TRANSFER_S),
        engine.docker._query(
            f"containers/{container}/archive",
            "PUT",
            params={"path": folder, "noOverwriteDirNonDir": "true"},
            data=file,
            headers={"Content-Type": "application/x-tar"},
            timeout=aiohttp.ClientTimeout(total=None),
        ),
    ):
        pass


async def get_archive(engine: Engine, container: str, path: str, file: BinaryIO, *, limit_bytes: int) -> None:
    """Write what is at a path of a container to a file, as tar (`GET /containers/{id}/archive`).

    Raises:
        LimitReached: It is larger than `limit_bytes`.
        EngineError: It did not come whole.
    """
    size = 0
    async with (
        engine_errors("carry the workspace back from the engine", timeout_s=_TRANSFER_S),
        engine.docker._query(
            f"containers/{container}/archive",
            "GET",
            params={"path": path},
            timeout=aiohttp.ClientTimeout(total=None, sock_read=_STALLED_S),
        ) as response,
    ):
        async for chunk in response.content.iter_chunked(_CHUNK):
            size += len(chunk)
            if size > limit_bytes:
                raise LimitReached("disk", allowed=limit_bytes, used=size)
            await anyio.to_thread.run_sync(file.write, chunk)
