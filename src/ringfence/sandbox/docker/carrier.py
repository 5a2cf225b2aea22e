"""A workspace on an engine that does not see this machine's files: a volume, filled before and emptied after.

The volume is reached through a second container, which is made and never started. So what the agent wrote is read when
everything of it is dead, by the engine, and also where the sandbox did not end in order; and the volume's own directory
can be given to the sandbox's user, which nobody in the sandbox could do.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, RingfenceError, next_step
from ringfence.removal import put_in_place, remove_tree
from ringfence.sandbox.base import Launch, Placement
from ringfence.sandbox.docker.client import Engine, EngineError
from ringfence.sandbox.docker.create import volume_mount
from ringfence.sandbox.docker.labels import carrier_name, container_name
from ringfence.sandbox.docker.volumes import create_volume, get_archive, put_archive, remove_volume
from ringfence.sandbox.tar import TOP, Bounds, Transfer, pack_workspace, unpack_workspace
from ringfence.sandbox.workspace.run_as import Actor, owner_of

_FOLDER = "/carried"
_MOST = Bounds(16 * 1024**3, 1_000_000)
_REMOVE_S = 20.0
_NOTED = 20
_HEADERS_BYTES = 2048
"""Of a file's headers in a stream, with the filling up to whole blocks; on average."""


class Carrier:
    """A volume with a workspace. Made by `bring_in`; `end` it, or `remove` it.

    Args:
        engine: Where it is.
        launch: For what it was made.
        container: The one that never runs.
        packed: What was brought in.
    """

    def __init__(self, engine: Engine, launch: Launch, container: str, packed: Transfer) -> None:
        self.volume = _name(launch)
        self._engine = engine
        self._launch = launch
        self._container = container
        self._packed = packed
        self._failure: RingfenceError | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told at the start."""
        left_out = self._packed.left_out
        return (f"not carried to the engine: {', '.join(left_out[:_NOTED])}",) if left_out else ()

    @classmethod
    async def bring_in(
        cls, engine: Engine, launch: Launch, *, image: str, labels: Mapping[str, str]
    ) -> "Carrier":
        """Make a volume with the workspace of a launch.

        Args:
            engine: Where.
            launch: Whose placement says what, and whose it is inside.
            image: An image's digest; nothing of it is run.
            labels: For volume and container.

        Raises:
            EngineError: The engine does not do it; nothing is left of it.
            InfrastructureFault: The workspace cannot be read, or is too large.
        """
        name, container = _name(launch), ""
        with _spool() as file:
            packed = await _pack(launch.placement, file)
            await create_volume(engine, name, labels)
            try:
                container = await engine.create(_never_run(name, image, labels), carrier_name(name))
                await put_archive(engine, container, _FOLDER, file)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await _remove(engine, name, container)
                raise
        return cls(engine, launch, container, packed)

    async def end(self, failure: RingfenceError | None) -> None:
        """Put what is in the volume in the place of what was brought in, where that is wanted, and remove it.

        Args:
            failure: Why something that writes to it may still be alive; then it stays as it is here.
        """
        self._failure = failure
        if self._failure is None and self._launch.placement.carry == "both":
            try:
                self._notes = (await self._bring_back()).notes
            except RingfenceError as exc:
                self._failure = exc
        with anyio.move_on_after(_REMOVE_S):
            await self.remove()

    def came_back(self) -> tuple[str, ...]:
        """What the user should be told of the way back.

        Raises:
            LimitReached: There was more than may come back.
            InfrastructureFault: It did not come whole, was no workspace, or could not be written. What was brought in is
                as it was.
        """
        if self._failure is not None and self._launch.placement.carry == "both":
            raise self._failure
        return self._notes

    async def _bring_back(self) -> Transfer:
        placement = self._launch.placement
        bounds = Bounds(self._packed.size_bytes + int(self._launch.spec.disk), _MOST.entries)
        with _spool() as file:
            limit = bounds.size_bytes + _MOST.entries * _HEADERS_BYTES
            await get_archive(self._engine, self._container, f"{_FOLDER}/{TOP}", file, limit_bytes=limit)
            file.seek(0)
            return await anyio.to_thread.run_sync(lambda: _put_back(placement, file, bounds))

    async def remove(self) -> None:
        """Remove volume and container. What cannot be removed now is so later, by its labels."""
        await _remove(self._engine, self.volume, self._container)


def _name(launch: Launch) -> str:
    return container_name(launch.sandbox_id)


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
            "Mounts": [volume_mount(volume, f"{_FOLDER}/{TOP}", read_only=False)],
        },
    }


async def _remove(engine: Engine, volume: str, container: str) -> None:
    with suppress(EngineError):
        if container:
            await engine.remove(container)
        await remove_volume(engine, volume)


async def _pack(placement: Placement, file: BinaryIO) -> Transfer:
    source = placement.workspace_source
    assert source is not None
    # A clone lies where only the caller can walk to; the user's own files are read as theirs.
    is_users = source == placement.workspace and os.geteuid() == 0
    actor = owner_of(source) if is_users else Actor.current()

    def work() -> Transfer:
        only = b".git" if placement.carry == "git" else None
        packed = pack_workspace(
            source, file.write, uid=placement.uid, gid=placement.gid, bounds=_MOST, only=only
        )
        file.seek(0)
        return packed

    return await actor.call(work)


def _put_back(placement: Placement, file: BinaryIO, bounds: Bounds) -> Transfer:
    source, workspace = placement.workspace_source, placement.workspace
    assert source is not None
    assert workspace is not None
    protected = [
        os.fsencode(overlay.target.relative_to(workspace))
        for overlay in placement.overlays
        if overlay.read_only
    ]
    fresh = Path(tempfile.mkdtemp(prefix=f"{source.name}-", dir=source.parent))
    try:
        unpacked = unpack_workspace(file.read, fresh, original=source, protected=protected, bounds=bounds)
        put_in_place(fresh, source)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not put what the engine carried back in the place of {str(source)!r}: {exc.strerror}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
    finally:
        if fresh.exists():
            with suppress(OSError):  # it goes with the run
                remove_tree(fresh)
    return unpacked


@contextmanager
def _spool() -> Iterator[BinaryIO]:
    """A file without a name: a transfer that ends early has touched nothing."""
    try:
        with tempfile.TemporaryFile(dir=make_private_dir(state_dir() / "tmp")) as file:
            yield cast("BinaryIO", file)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not keep what is carried below {str(state_dir())!r}: {exc.strerror or exc}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
