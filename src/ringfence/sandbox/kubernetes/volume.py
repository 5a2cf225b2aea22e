"""The volume of a pod that holds the workspace: uploaded and downloaded through the container `FILES`.

That container runs nothing but ringfence's own programs: its first process waits for the upload. When the workspace is
downloaded, every process of the agent is dead; what they left is read as data, and no link is followed.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import anyio
import anyio.to_thread

from ringfence.errors import InfrastructureFault, LimitReached
from ringfence.sandbox.base import Volume
from ringfence.sandbox.kubernetes.cluster import Cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError, shown
from ringfence.sandbox.kubernetes.inside import program
from ringfence.sandbox.kubernetes.manifest import CARRIED, FILES, INTERPRETER
from ringfence.sandbox.kubernetes.openings import check_unchanged
from ringfence.sandbox.kubernetes.pod_stream import KEEP_ALIVE_S, PodStream
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.tar.stream import TOP

_TRANSFER_S = 1800.0
_REMOVE_S = 20.0
_CHUNK = 1024**2
_DONE = b"done"
_SIZE_BYTES = 8
"""The size comes before an upload (`inside/receive.py`)."""


@dataclass(eq=False)
class PodVolume(Volume):
    """The workspace of a pod that runs. Owns the session with the cluster, and the pod; `remove` deletes it.

    It can be filled once.
    """

    cluster: Cluster
    name: str
    uid: int
    gid: int
    pod: Mapping[str, Any]
    """As it was when all of its containers ran."""
    receiver: PodStream
    """To the first process of `FILES`, which waits for the upload."""
    spec: SandboxSpec
    has_waited: bool = False
    """Whether it was kept ready for a run, so that the pod may have been changed meanwhile."""

    async def keep_alive(self) -> None:
        """Keep the stream for the upload alive; one that is lost is noticed by the upload."""
        self.has_waited = True
        while True:
            await anyio.sleep(KEEP_ALIVE_S)
            await self.receiver.keep_alive()

    async def put(self, file: BinaryIO) -> None:
        """Unpack a tar file in it."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        doing = "upload the workspace to the pod"
        with _bounded(doing):
            async with self.receiver as stream:
                with suppress(anyio.BrokenResourceError):  # the program has ended, and has said why
                    await stream.send(size.to_bytes(_SIZE_BYTES, "big"))
                    while data := await anyio.to_thread.run_sync(file.read, _CHUNK):
                        await stream.send(data)
                if self.has_waited:  # here, as the program unpacks meanwhile
                    await check_unchanged(self.cluster, self.name, self.spec)
                answer = await stream.receive_all(len(_DONE))
        if answer != _DONE:
            raise InfrastructureFault(f"could not {doing}: {_said(stream)}")

    async def get(self, file: BinaryIO, *, limit_bytes: int) -> None:
        """Write its contents to a tar file."""
        doing, size = "download the workspace from the pod", 0
        with _bounded(doing):
            argv = (*INTERPRETER, program("get"), CARRIED, TOP)
            stream = await self.cluster.open_stream(doing, self.name, FILES, argv=argv)
            async with stream:
                with suppress(anyio.EndOfStream):
                    while True:
                        data = await stream.receive(_CHUNK)
                        size += len(data)
                        if size > limit_bytes:
                            raise LimitReached("disk", allowed=limit_bytes, used=size)
                        await anyio.to_thread.run_sync(file.write, data)
        if (stream.status or {}).get("status") != "Success":
            raise InfrastructureFault(f"could not {doing}: {_said(stream)}")

    async def remove(self) -> None:
        """Delete the pod, and end the session; a pod that cannot be deleted now is found later by its labels."""
        with suppress(InfrastructureFault), anyio.move_on_after(_REMOVE_S):
            await delete_pod(self.cluster, self.name)
        await self.receiver.aclose()
        await self.cluster.aclose()


async def delete_pod(cluster: Cluster, name: str) -> bool:
    """Delete a pod; return whether it was there. Its node ends it afterwards.

    Raises:
        ClusterError: The cluster refuses, or cannot be reached.
    """
    try:
        await cluster.call(f"delete pod {name!r}", "DELETE", cluster.path("pods", name))
    except ClusterError as exc:
        if not exc.is_absent:
            raise
        return False
    return True


@contextmanager
def _bounded(doing: str) -> Iterator[None]:
    try:
        with anyio.fail_after(_TRANSFER_S):
            yield
    except TimeoutError as exc:
        raise InfrastructureFault(f"could not {doing} within {_TRANSFER_S:g} s") from exc
    except anyio.BrokenResourceError as exc:
        raise InfrastructureFault(f"could not {doing}: the connection broke") from exc


def _said(stream: PodStream) -> str:
    message = str((stream.status or {}).get("message") or "the connection ended early")
    return shown(stream.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or message)
