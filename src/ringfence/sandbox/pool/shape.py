"""What must be the same for a sandbox that was started ahead to serve a run as its own would.

Two hashes: what was asked for, and what is mounted, each host path by its identity on disk. A file that was
replaced since, or a protected file that appeared, makes another layout, and the sandbox is not handed out. So does
a covered socket that was made anew: the kernel takes a mount away with the name that it was mounted on.
"""

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence import __version__
from ringfence.frozen import frozen
from ringfence.sandbox.base import Overlay, Placement
from ringfence.sandbox.guest import frames
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.workspace.protect.mounts import COVER

_DIGITS = 16
_AROUND = (
    "PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Variables by which toolchains, and engines, are found."""
_PER_RUN = frozenset({"setup", "env", "ttl_s", "egress"})
"""Applied to each command, or at hand-over: they need not be the same."""


@frozen
class Shape:
    """The key of a pool."""

    request: str
    """Of what was asked for: equal for runs that only differ in what the workspace holds."""
    layout: str
    """Of what is mounted."""

    @property
    def key(self) -> str:
        """Both, as a name."""
        return f"{self.request}-{self.layout}"


def shape_of(spec: SandboxSpec, placement: Placement, run_dir: Path, *, image_id: str | None = None) -> Shape:
    """The shape of a run's first sandbox.

    Args:
        spec: What is asked for.
        placement: As prepared for the run.
        run_dir: The run's own directory: what lies in it is filled at hand-over and has no identity yet.
        image_id: What the name of the spec's image means now.

    Raises:
        OSError: Something that is to be mounted is gone.
    """
    asked = {
        "version": __version__,
        "protocol": frames.VERSION,
        "python": sys.version,
        "code": _code(),
        "spec": spec.model_dump(mode="json", exclude=set(_PER_RUN)),
        "limits": sorted(spec.explicit_limits()),
        "uid": placement.uid,
        "gid": placement.gid,
        "workspace": placement.workspace,
        "around": [os.environ.get(name) for name in _AROUND],
    }
    mounted = [
        [
            overlay.target,
            overlay.read_only,
            *_identity(overlay.source, run_dir),
            *_covered(overlay, placement),
        ]
        for overlay in _mounts(spec, placement)
    ]
    return Shape(_hash(asked), _hash([*mounted, image_id]))


def _mounts(spec: SandboxSpec, placement: Placement) -> Iterator[Overlay]:
    """Everything of the host's that is shown, in order."""
    if placement.workspace is not None and placement.workspace_source is not None:
        yield Overlay(placement.workspace_source, placement.workspace, placement.workspace_read_only)
    yield from placement.overlays
    for mount in spec.mounts:
        yield Overlay(mount.source, Path(mount.target), mount.read_only)


def _identity(source: Path, run_dir: Path) -> tuple[Any, ...]:
    status = source.lstat()
    if source.is_relative_to(run_dir):
        return "slot", source.relative_to(run_dir), stat.S_IFMT(status.st_mode)
    return source, status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode)


def _covered(overlay: Overlay, placement: Placement) -> tuple[int, ...]:
    """What on the host a cover lies upon."""
    inside, source = placement.workspace, placement.workspace_source
    if (
        overlay.source != COVER
        or inside is None
        or source is None
        or not overlay.target.is_relative_to(inside)
    ):
        return ()
    status = (source / overlay.target.relative_to(inside)).lstat()
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _code() -> list[Any]:
    """The guest's code, by when it was written: a version under development changes without a new number."""
    folder = Path(frames.__file__).parent
    return [folder, max(file.stat().st_mtime_ns for file in folder.glob("*.py"))]


def _hash(document: object) -> str:
    encoded = json.dumps(document, sort_keys=True, ensure_ascii=True, default=os.fspath).encode()
    return hashlib.sha256(encoded).hexdigest()[:_DIGITS]


def moved(placement: Placement, from_dir: Path, to_dir: Path) -> Placement:
    """The same placement, with what lies in one directory lying in another."""

    def move(path: Path) -> Path:
        return to_dir / path.relative_to(from_dir) if path.is_relative_to(from_dir) else path

    source = placement.workspace_source
    return replace(
        placement,
        workspace_source=None if source is None else move(source),
        overlays=tuple(replace(overlay, source=move(overlay.source)) for overlay in placement.overlays),
    )
