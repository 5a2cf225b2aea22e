"""The volume of a pod that holds the workspace: uploaded and downloaded through the container `FILES`.

When the workspace is downloaded, every process of the agent is dead; what they left is read as data, and no link is
followed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import anyio
import anyio.to_thread

from ringfence.errors import InfrastructureFault, LimitReached
from ringfence.sandbox.base import Volume
from ringfence.sandbox.kubernetes.inside import program
from ringfence.sandbox.kubernetes.manifest import CARRIED, FILES, INTERPRETER
from ringfence.sandbox.kubernetes.pod import SandboxPod
from ringfence.sandbox.tar.stream import TOP

_TRANSFER_S = 1800.0


@dataclass(eq=False)
class PodVolume(Volume):
    """The workspace of a pod that runs. Owns the pod; `remove` deletes it. It can be filled once."""

    pod: SandboxPod
    uid: int
    gid: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """Take the pod's name."""
        self.name = self.pod.name

    async def keep_alive(self) -> None:
        """Keep the stream for the upload alive; one that is lost is noticed by the upload."""
        await self.pod.files.keep_alive()

    async def put(self, file: BinaryIO) -> None:
        """Unpack a tar file in it, unless the pod was changed, or its network opened, since it was made."""
        await self.pod.check()
        with _bounded("upload the workspace to the pod"):
            await self.pod.files.unpack(file)
        await self.pod.files.aclose()

    async def get(self, file: BinaryIO, *, limit_bytes: int) -> None:
        """Write its contents to a tar file."""
        doing, size = "download the workspace from the pod", 0
        argv = (*INTERPRETER, program("get"), CARRIED, TOP)
        stream = await self.pod.cluster.open_stream(doing, self.name, FILES, argv=argv)
        with _bounded(doing):
            async with stream:
                async for data in stream:
                    size += len(data)
                    if size > limit_bytes:
                        raise LimitReached("disk", allowed=limit_bytes, used=size)
                    await anyio.to_thread.run_sync(file.write, data)
            if (stream.status or {}).get("status") != "Success":
                raise InfrastructureFault(stream.why_ended)

    async def remove(self) -> None:
        """Delete the pod, and end the session."""
        await self.pod.remove()


@contextmanager
def _bounded(doing: str) -> Iterator[None]:
    try:
        with anyio.fail_after(_TRANSFER_S):
            yield
    except LimitReached:
        raise
    except TimeoutError as exc:
        raise InfrastructureFault(f"could not {doing} within {_TRANSFER_S:g} s") from exc
    except anyio.BrokenResourceError as exc:
        raise InfrastructureFault(f"could not {doing}: the connection broke") from exc
    except InfrastructureFault as exc:
        raise InfrastructureFault(f"could not {doing}: {exc}") from exc
