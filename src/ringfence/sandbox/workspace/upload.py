"""Uploads a workspace to a backend's volume before the sandbox starts, and downloads it when the sandbox is dead."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.removal import put_in_place, remove_tree
from ringfence.sandbox.base import Backend, Launch, Placement, Volume
from ringfence.sandbox.tar.pack import pack_workspace
from ringfence.sandbox.tar.stream import Bounds, Transfer
from ringfence.sandbox.tar.unpack import unpack_workspace
from ringfence.sandbox.workspace.run_as import Actor

_MAX_TRANSFER = Bounds(16 * 1024**3, 1_000_000)
_REMOVE_S = 20.0
_MAX_IN_NOTE = 20
_HEADERS_BYTES = 2048
"""Average size of a file's headers in a stream, with the padding of its contents."""


@frozen
class Upload:
    """A workspace that was uploaded to a volume; made by `uploaded`."""

    launch: Launch
    """The launch of the sandbox that uses it."""
    volume: Volume
    packed: Transfer
    """Counts and notes of the upload."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user at the start of the sandbox."""
        left_out = self.packed.left_out
        return (f"not uploaded to the engine: {', '.join(left_out[:_MAX_IN_NOTE])}",) if left_out else ()

    async def download(self, survivors: str | None) -> tuple[str, ...]:
        """Replace the workspace with the contents of the volume, if the placement asks for a download.

        Args:
            survivors: The result of `Fence.kill`; if anything in the sandbox may still write, nothing is downloaded.

        Returns:
            Notes for the user.

        Raises:
            LimitReached: The contents exceed the limits for a download.
            InfrastructureFault: The stream ended early, is not a workspace, or could not be written. The workspace on
            this machine is unchanged.
        """
        placement = self.launch.placement
        if not placement.is_downloaded:
            return ()
        if survivors is not None:
            raise InfrastructureFault(survivors)
        bounds = Bounds(self.packed.size_bytes + int(self.launch.spec.disk), _MAX_TRANSFER.entries)
        with _spool() as file:
            limit = bounds.size_bytes + _MAX_TRANSFER.entries * _HEADERS_BYTES
            await self.volume.get(file, limit_bytes=limit)
            file.seek(0)
            unpacked = await anyio.to_thread.run_sync(lambda: _put_back(placement, file, bounds))
        return unpacked.notes


@asynccontextmanager
async def uploaded(backend: Backend, launch: Launch) -> AsyncIterator[Upload]:
    """Upload the workspace of a launch to a new volume; remove the volume when the context is left.

    Args:
        backend: The backend that makes the volume.
        launch: The launch, whose placement says what is uploaded.

    Raises:
        PolicyRefused, SandboxStartFailed: As `Backend.make_volume`.
        InfrastructureFault: The workspace cannot be read, is too large, or did not arrive.
    """
    async with uploaded_to(await backend.make_volume(launch), launch) as upload:
        yield upload


@asynccontextmanager
async def uploaded_to(volume: Volume, launch: Launch) -> AsyncIterator[Upload]:
    """Upload the workspace of a launch to an empty volume; remove the volume when the context is left.

    Raises:
        InfrastructureFault: As `uploaded`.
    """
    try:
        with _spool() as file:
            packed = await _pack(launch.placement, file, volume)
            await volume.put(file)
        yield Upload(launch, volume, packed)
    finally:
        with anyio.move_on_after(_REMOVE_S, shield=True):
            await volume.remove()


async def _pack(placement: Placement, file: BinaryIO, volume: Volume) -> Transfer:
    source = placement.workspace_source
    assert source is not None
    # A clone can be reached only by the caller; the user's own files are read as their owner.
    actor = Actor.for_files(source) if source == placement.workspace else Actor.current()

    def work() -> Transfer:
        only = b".git" if placement.upload == "git" else None
        packed = pack_workspace(
            source, file.write, uid=volume.uid, gid=volume.gid, bounds=_MAX_TRANSFER, only=only
        )
        file.seek(0)
        return packed

    return await actor.call(work)


def _put_back(placement: Placement, file: BinaryIO, bounds: Bounds) -> Transfer:
    source, workspace = placement.workspace_source, placement.workspace
    assert source is not None
    assert workspace is not None
    protected = [
        os.fsencode(mount.target.relative_to(workspace)) for mount in placement.mounts if mount.read_only
    ]
    fresh = Path(tempfile.mkdtemp(prefix=f"{source.name}-", dir=source.parent))
    try:
        unpacked = unpack_workspace(file.read, fresh, original=source, protected=protected, bounds=bounds)
        put_in_place(fresh, source)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not put what was downloaded from the engine in the place of {str(source)!r}: {exc.strerror}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
    finally:
        with suppress(OSError):  # absent after a success; otherwise it is removed with the run
            remove_tree(fresh)
    return unpacked


@contextmanager
def _spool() -> Iterator[BinaryIO]:
    """A temporary file for a whole transfer, so that a transfer that ends early changes nothing."""
    try:
        with tempfile.TemporaryFile(dir=make_private_dir(state_dir() / "tmp")) as file:
            yield cast("BinaryIO", file)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not keep the upload below {str(state_dir())!r}: {exc.strerror or exc}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
