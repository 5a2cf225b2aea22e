"""Prepares the directories that a warm sandbox starts on, and decides which runs it may serve.

A *shape* is what must be equal for a warm sandbox to serve a run as well as a cold one: two hashes, one of the request
and one of the mounts, which identifies each host path by its identity on disk. A file that was replaced since, or a
protected file that appeared, makes another shape. So does a masked socket that was created again: the kernel drops a
mount when the name under it is removed.

A *skeleton* is the empty directories and files that a warm sandbox shows. A mount follows its source directory when
that is moved or gets new contents. So a run's own contents are moved into the skeleton at the hand-over, and the
skeleton takes the place of the run's own directory. Only the image's own interpreter ran inside before, which can be
hostile: the skeleton is checked, and never reached through a link.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence import __version__
from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox.base import BindMount, Placement
from ringfence.sandbox.guest import frames
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.workspace.protect.mounts import COVER

_DIGITS = 16
_ENVIRONMENT = (
    "PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Variables by which toolchains and container engines are found."""
_PER_RUN = frozenset({"setup", "env", "ttl_s", "egress"})
"""Fields of a spec that are applied to each command or at the hand-over: they may differ."""
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OWN = ("git", "work")
"""Names that `workspace.run.prepare` creates in a run's directory for its sandboxes."""


@frozen
class Shape:
    """The key of a sandbox in a pool."""

    request: str
    """Hash of the request: equal for runs that differ only in the contents of the workspace."""
    layout: str
    """Hash of the mounts."""

    @property
    def key(self) -> str:
        """Both hashes, as a name."""
        return f"{self.request}-{self.layout}"


def shape_of(spec: SandboxSpec, placement: Placement, run_dir: Path, *, image_id: str | None = None) -> Shape:
    """The shape of a run's first sandbox.

    Args:
        spec: The requested sandbox.
        placement: As prepared for the run.
        run_dir: The run's own directory, whose contents are filled in at the hand-over and have no identity yet.
        image_id: The id of the image that the spec names now.

    Raises:
        OSError: Something that is to be mounted is gone.
    """
    request = {
        "version": __version__,
        "protocol": frames.VERSION,
        "python": sys.version,
        "code": _code(),
        "spec": spec.model_dump(mode="json", exclude=set(_PER_RUN)),
        "limits": sorted(spec.explicit_limits()),
        "uid": placement.uid,
        "gid": placement.gid,
        "workspace": placement.workspace,
        "environment": [os.environ.get(name) for name in _ENVIRONMENT],
    }
    own = (BindMount(mount.source, Path(mount.target), mount.read_only) for mount in spec.mounts)
    mounted = [
        [mount.target, mount.read_only, *_identity(mount.source, run_dir), *_masked(mount, placement)]
        for mount in (*_mounts(placement), *own)
    ]
    return Shape(_hash(request), _hash([*mounted, image_id]))


def _mounts(placement: Placement) -> Iterator[BindMount]:
    """All mounts of a placement, in order; none of a workspace that is uploaded."""
    if placement.upload != "none":
        return
    if placement.workspace is not None and placement.workspace_source is not None:
        yield BindMount(placement.workspace_source, placement.workspace, placement.workspace_read_only)
    yield from placement.mounts


def _identity(source: Path, run_dir: Path) -> tuple[Any, ...]:
    status = source.lstat()
    if source.is_relative_to(run_dir):
        return "run", source.relative_to(run_dir), stat.S_IFMT(status.st_mode)
    return source, status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode)


def _masked(mount: BindMount, placement: Placement) -> tuple[int, ...]:
    """Identity of the host path that a mask is mounted on."""
    inside, source = placement.workspace, placement.workspace_source
    if mount.source != COVER or inside is None or source is None or not mount.target.is_relative_to(inside):
        return ()
    status = (source / mount.target.relative_to(inside)).lstat()
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _code() -> list[Any]:
    """When the guest's code was last changed, as it changes during development without a new version number."""
    folder = Path(frames.__file__).parent
    return [folder, max(file.stat().st_mtime_ns for file in folder.glob("*.py"))]


def _hash(document: object) -> str:
    encoded = json.dumps(document, sort_keys=True, ensure_ascii=True, default=os.fspath).encode()
    return hashlib.sha256(encoded).hexdigest()[:_DIGITS]


def move_placement(placement: Placement, from_dir: Path, to_dir: Path) -> Placement:
    """The same placement, with the sources in one directory moved to another."""

    def move(path: Path) -> Path:
        return to_dir / path.relative_to(from_dir) if path.is_relative_to(from_dir) else path

    source = placement.workspace_source
    return replace(
        placement,
        workspace_source=None if source is None else move(source),
        mounts=tuple(replace(mount, source=move(mount.source)) for mount in placement.mounts),
    )


def make_skeleton(placement: Placement, run_dir: Path, folder: Path) -> Placement:
    """Create the skeleton for a warm sandbox of a run's shape in `folder`; return its placement.

    Args:
        placement: The run's placement.
        run_dir: The run's directory.
        folder: An empty directory.

    Raises:
        OSError: It cannot be created.
    """
    target = move_placement(placement, run_dir, folder)
    pairs = zip(_mounts(placement), _mounts(target), strict=True)
    for original, copy in sorted(pairs, key=lambda pair: len(pair[1].source.parts)):
        if copy.source.is_relative_to(folder):
            _make_like(original.source, copy.source)
    _make_mount_points(list(_mounts(target)), folder)
    return target


def _make_mount_points(mounts: Sequence[BindMount], folder: Path) -> None:
    """Create the mount points that lie in the skeleton itself."""
    for number, mount in enumerate(mounts):
        around = [one for one in mounts[:number] if one.target in mount.target.parents]
        if not around:
            continue
        outer = max(around, key=lambda one: len(one.target.parts))
        if outer.source.is_relative_to(folder):
            _make_like(mount.source, outer.source / mount.target.relative_to(outer.target))


def _make_like(original: Path, copy: Path) -> None:
    """Create an empty file or directory with the owner and mode of another, unless it exists."""
    status = original.lstat()
    if not os.path.lexists(copy):
        if stat.S_ISDIR(status.st_mode):
            copy.mkdir(mode=0o700)
        else:
            copy.touch(mode=0o600)
    now = copy.lstat()
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        os.chown(copy, status.st_uid, status.st_gid, follow_symlinks=False)
    copy.chmod(stat.S_IMODE(status.st_mode))


def fits(folder: Path, run_dir: Path) -> bool:
    """Whether everything in a skeleton has its counterpart in the run's directory."""
    return all(_fits(folder / name, run_dir / name) for name in _OWN)


def _fits(skeleton: Path, own: Path) -> bool:
    if not os.path.lexists(skeleton):
        return not os.path.lexists(own)
    if not os.path.lexists(own) or _kind(skeleton) != _kind(own):
        return False
    if _kind(skeleton) != stat.S_IFDIR:
        return _kind(skeleton) == stat.S_IFREG
    return all(_fits(inner, own / inner.name) for inner in skeleton.iterdir())


def _kind(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode)


def hand_over(folder: Path, run_dir: Path) -> None:
    """Move a run's own contents into a skeleton, and its directories to where the run's own were.

    The directories are already shown inside, where an image's own programs may change them at any moment. So they are
    reached by descriptors, never by paths, and no link is followed.

    Raises:
        InfrastructureFault: The move failed, and both directories may have changed.
    """
    try:
        for name in _OWN:
            if (folder / name).is_dir():
                with _opened(run_dir / name) as own, _opened(folder / name) as skeleton:
                    _merge(own, skeleton)
                remove_tree(run_dir / name)
                (folder / name).rename(run_dir / name)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not hand over {str(folder)!r} to {str(run_dir)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


@contextmanager
def _opened(path: Path | str, *, at: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _merge(own: int, skeleton: int) -> None:
    for name in os.listdir(own):
        try:
            there = os.stat(name, dir_fd=skeleton, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, name, src_dir_fd=own, dst_dir_fd=skeleton)
            continue
        if stat.S_ISDIR(there.st_mode):
            with _opened(name, at=own) as inner, _opened(name, at=skeleton) as target:
                _merge(inner, target)
        else:
            _fill(name, own, skeleton)
    status = os.fstat(own)
    os.fchown(skeleton, status.st_uid, status.st_gid)
    os.fchmod(skeleton, stat.S_IMODE(status.st_mode))


def _fill(name: str, own: int, skeleton: int) -> None:
    """Copy a file's contents into a mounted file, which must stay the same file."""
    with (
        os.fdopen(os.open(name, os.O_RDONLY | _FILE, dir_fd=own), "rb") as reading,
        os.fdopen(os.open(name, os.O_WRONLY | _FILE, dir_fd=skeleton), "wb") as writing,
    ):
        if not stat.S_ISREG(os.fstat(writing.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no file any more")
        writing.truncate()
        shutil.copyfileobj(reading, writing)
        writing.flush()
        status = os.fstat(reading.fileno())
        os.fchmod(writing.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(writing.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.unlink(name, dir_fd=own)
