"""The volume of a warm sandbox, which its supervisor owns, in the hands of the run that has taken the sandbox.

A run keeps one connection open. Its requests and the replies are JSON objects; files go along as open descriptors, so
that no byte of a workspace passes through the connection. When it closes, the supervisor removes the volume.
"""

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ringfence.errors import InfrastructureFault, LimitReached, RingfenceError
from ringfence.sandbox.base import Volume
from ringfence.sandbox.guest import frames
from ringfence.sandbox.supervisor.client import ensure_exit
from ringfence.sandbox.supervisor.connection import LOST, VOLUME
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState

_REQUEST_BYTES = 1024
_REPLY_BYTES = 64 * 1024
_FAULT_CHARS = 4096
_OPEN_S, _END_S = 5.0, 60.0
_TRANSFER_S = 1860.0
"""Longer than the volumes of all backends take, which end a transfer themselves."""


class WarmVolume(Volume):
    """The volume, for the run. Made by `open`; `remove` lets the supervisor remove it, and exit."""

    def __init__(
        self, connection: UNIXSocketStream, directory: SandboxDirectory, state: SupervisorState
    ) -> None:
        self.name = state.sandbox_id
        self._connection = connection
        self._replies = BufferedByteReceiveStream(connection)
        self._directory = directory
        self._state = state

    @classmethod
    async def open(cls, directory: SandboxDirectory, state: SupervisorState) -> "WarmVolume":
        """Take the volume of a sandbox that this run has claimed.

        Raises:
            InfrastructureFault: Its supervisor is gone.
        """
        try:
            volume = cls(await directory.connect_socket(), directory, state)
        except OSError as exc:
            raise InfrastructureFault(f"no supervisor answers in {str(directory.path)!r}: {exc}") from exc
        try:
            owner = await volume._request(frames.encode_frame(VOLUME), timeout_s=_OPEN_S)
        except BaseException:
            await volume._connection.aclose()
            raise
        volume.uid, volume.gid = owner["uid"], owner["gid"]
        return volume

    async def put(self, file: BinaryIO) -> None:
        """Have the supervisor unpack a tar file in it."""
        await self._transfer(file)

    async def get(self, file: BinaryIO, *, limit_bytes: int) -> None:
        """Have the supervisor write its contents to a tar file."""
        await self._transfer(file, limit_bytes=limit_bytes)

    async def _transfer(self, file: BinaryIO, **request: int) -> None:
        reply = await self._request(json.dumps(request).encode(), file, timeout_s=_TRANSFER_S)
        if "limit" in reply:
            raise LimitReached(reply["limit"], allowed=reply["allowed"], used=reply["used"])
        if "fault" in reply:
            raise InfrastructureFault(reply["fault"])

    async def sandbox_end(self) -> str | None:
        """Wait until the supervisor has killed everything inside; return the result of `Fence.kill`."""
        try:
            left: str | None = (await self._request(b"{}", timeout_s=_END_S))["left"]
        except InfrastructureFault as exc:
            return f"{exc}; the volume of the workspace cannot be read"
        return left

    async def remove(self) -> None:
        """Leave the volume to the supervisor, which removes it; see that it has exited."""
        await self._connection.aclose()
        with suppress(InfrastructureFault):
            await ensure_exit(self._directory, self._state)

    async def _request(
        self, data: bytes, file: BinaryIO | None = None, *, timeout_s: float
    ) -> dict[str, Any]:
        try:
            with anyio.fail_after(timeout_s):
                if file is None:
                    await self._connection.send(data)
                else:
                    await self._connection.send_fds(data, [file.fileno()])
                reply = await self._replies.receive_until(b"\n", _REPLY_BYTES)
            return cast("dict[str, Any]", json.loads(reply))
        except TimeoutError as exc:
            raise InfrastructureFault(
                f"the supervisor of sandbox {self.name} does not answer within {timeout_s:g} s"
            ) from exc
        except (*LOST, anyio.IncompleteRead) as exc:
            raise InfrastructureFault(f"the supervisor of sandbox {self.name} is gone") from exc


async def serve_volume(
    run: UNIXSocketStream, volume: Volume, sandbox_end: Callable[[], Awaitable[str | None]]
) -> None:
    """Answer the requests of a run for a volume, until it leaves.

    Args:
        run: The run's connection.
        volume: The volume.
        sandbox_end: Waits until everything inside is dead; returns the result of `Fence.kill`.
    """
    reply: dict[str, Any] | None = {"uid": volume.uid, "gid": volume.gid}
    while reply is not None:
        await run.send(json.dumps(reply).encode() + b"\n")
        request, descriptors = await run.receive_fds(_REQUEST_BYTES, 1)
        reply = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, run, tasks.cancel_scope)
            if descriptors:
                with os.fdopen(descriptors[0], "r+b") as file:
                    reply = await _transferred(volume, file, json.loads(request))
            else:
                reply = {"left": await sandbox_end()}
            tasks.cancel_scope.cancel()


async def _watch(run: UNIXSocketStream, serving: anyio.CancelScope) -> None:
    """Cancel a request whose run leaves before it is carried out; the run sends nothing meanwhile."""
    with suppress(*LOST):
        await run.receive()
    serving.cancel()


async def _transferred(volume: Volume, file: BinaryIO, request: dict[str, int]) -> dict[str, Any]:
    try:
        if "limit_bytes" in request:
            await volume.get(file, limit_bytes=request["limit_bytes"])
            file.flush()
        else:
            await volume.put(file)
    except LimitReached as exc:
        return {"limit": exc.limit, "allowed": exc.allowed, "used": exc.used}
    except (RingfenceError, OSError) as exc:
        return {"fault": str(exc)[:_FAULT_CHARS]}
    return {}
