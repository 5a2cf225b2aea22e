"""The container `FILES` of a pod, seen from outside: requests to its first process (`inside/files.py`)."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.kubernetes.pod_stream import KEEP_ALIVE_S, PodStream

Target = tuple[str, str, int, str]
"""Name, host or place, port, and kind (`tcp` or `udp`) of an address that is probed."""
_CHUNK = 1024**2
_REPLY_BYTES = 256 * 1024


class FilesContainer:
    """A stream to the first process of the container. It serves one request at a time."""

    def __init__(self, stream: PodStream) -> None:
        self._stream = stream
        self._replies = BufferedByteReceiveStream(stream)

    async def begin_probe(self, targets: Sequence[Target], seconds: float) -> None:
        """Have it look which addresses answer, which takes this many seconds; `end_probe` returns what it found."""
        with suppress(anyio.BrokenResourceError):  # the process has ended, and its reply says why
            await self._send_request({"probe": targets, "seconds": seconds})

    async def end_probe(self) -> dict[str, Any]:
        """Wait for the probe: `answered`, a list of addresses, and `environment`.

        Raises:
            InfrastructureFault: The process ended, the connection broke, or this is no reply.
        """
        return await self._receive_reply()

    async def unpack(self, file: BinaryIO) -> None:
        """Have it unpack a tar file in the workspace.

        Raises:
            InfrastructureFault: As `end_probe`.
        """
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        with suppress(anyio.BrokenResourceError):
            await self._send_request({"unpack": size})
            while data := await anyio.to_thread.run_sync(file.read, _CHUNK):
                await self._stream.send(data)
        if await self._receive_reply() != {"unpacked": size}:
            raise InfrastructureFault("its answer is none")

    async def _send_request(self, request: dict[str, Any]) -> None:
        await self._stream.send(json.dumps(request).encode() + b"\n")

    async def _receive_reply(self) -> dict[str, Any]:
        with suppress(
            anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead, anyio.DelimiterNotFound
        ):
            line = await self._replies.receive_until(b"\n", _REPLY_BYTES)
            with suppress(ValueError, RecursionError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
            raise InfrastructureFault("its answer is none")
        raise InfrastructureFault(self._stream.why_ended)

    async def keep_alive(self) -> None:
        """Keep the stream alive while nothing is asked; one that is lost is noticed by the next request."""
        while True:
            await anyio.sleep(KEEP_ALIVE_S)
            await self._stream.keep_alive()

    async def aclose(self) -> None:
        """Close the stream; the process then waits for the end of the pod."""
        await self._stream.aclose()
