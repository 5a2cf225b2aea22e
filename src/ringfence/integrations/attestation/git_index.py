"""Reads which files git tracks in a work tree, from its index. Git is not run: whoever wrote the tree wrote the index.

Source: gitformat-index(5), versions 2 to 4. A split index and reftables of refs do not matter here or are refused.
"""

import os
import struct
from pathlib import Path

from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.layout import (
    GitLayout,
    examine_git,
    has_git,
    parse_format,
    read_config,
    read_small,
)
from ringfence.sandbox.workspace.snapshot.memo import lies_in

_MAX_BYTES = 512 * 1024**2
_MAX_ENTRIES = 2_000_000
_FIXED_BYTES = 42
"""Of an entry before the object's id: times, device, inode, mode, owner, group and size, less the id and flags."""
_GITLINK = 0o160000
_EXTENDED = 0x4000


@frozen
class Repository:
    """The repository that a directory is in."""

    layout: GitLayout
    prefix: bytes
    """The directory's path in the work tree, ending in a slash; empty for the work tree itself."""


@frozen
class Tracked:
    """The files that git tracks below a directory."""

    paths: frozenset[bytes]
    submodules: frozenset[bytes]
    """Directories, ending in a slash, of other repositories: each file in them counts as tracked."""

    def __contains__(self, path: bytes) -> bool:
        return path in self.paths or lies_in(path, self.submodules)


def find_repository(root: Path) -> Repository | None:
    """Find the repository that a directory is the work tree of, or lies in the work tree of; None without one.

    Args:
        root: The directory, resolved.

    Raises:
        ConfigurationError: A `.git` cannot be used.
    """
    owner = root.stat().st_uid
    for place in (root, *root.parents):
        if not has_git(place) or place.stat().st_uid != owner:
            continue
        layout = examine_git(place)
        if isinstance(layout, str):
            raise ConfigurationError(f"{layout}; --all-files compares every file without git")
        if layout is not None:
            inner = os.fsencode(root.relative_to(place))
            return Repository(layout, b"" if inner == b"." else inner + b"/")
    return None


def read_tracked(repository: Repository) -> Tracked | None:
    """Return the files that git tracks in the directory; None if it tracks none in a directory of its work tree.

    Raises:
        ConfigurationError: The index cannot be read.
    """
    layout, prefix = repository.layout, repository.prefix
    object_format, _ = parse_format(read_config(layout.common))
    data = read_small(layout.directory, b"index", _MAX_BYTES)
    try:
        if data is None and os.path.lexists(layout.directory / "index"):
            raise ValueError("it is too large, or no file")
        entries = parse_index(data or b"", id_bytes=32 if object_format == "sha256" else 20)
    except ValueError as exc:
        raise ConfigurationError(
            f"the git index of {str(layout.workspace)!r} cannot be used: {exc}; --all-files compares every file"
        ) from exc
    inside = {path[len(prefix) :]: mode for path, mode in entries.items() if path.startswith(prefix)}
    if prefix and not inside:
        return None
    links = {path for path, mode in inside.items() if mode == _GITLINK}
    return Tracked(frozenset(inside.keys() - links), frozenset(path + b"/" for path in links))


def parse_index(data: bytes, *, id_bytes: int) -> dict[bytes, int]:
    """Return the mode of each entry of an index, by path.

    Args:
        data: The file's content; empty: no file, of a repository without any.
        id_bytes: The length of an object's id.

    Raises:
        ValueError: It does not parse, or is a split index.
    """
    if not data:
        return {}
    if len(data) < 12 + id_bytes or data[:4] != b"DIRC":
        raise ValueError("it is no index")
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (2, 3, 4) or count > _MAX_ENTRIES:
        raise ValueError(f"it has version {version} and {count} entries")
    entries: dict[bytes, int] = {}
    at, path, end = 12, b"", len(data) - id_bytes
    for _ in range(count):
        start = at
        at += _FIXED_BYTES - 2 + id_bytes
        if at + 2 > end:
            raise ValueError("it is cut off")
        (mode,) = struct.unpack_from(">I", data, start + 24)
        (flags,) = struct.unpack_from(">H", data, at)
        at += 4 if flags & _EXTENDED else 2
        kept = 0
        if version == 4:
            dropped, at = _read_offset(data, at, end)
            kept = len(path) - dropped
            if kept < 0:
                raise ValueError("a path is shorter than nothing")
        stop = data.find(b"\0", at, end)
        if stop < 0:
            raise ValueError("it is cut off")
        path = path[:kept] + data[at:stop]
        at = stop + 1 if version == 4 else start + (stop - start + 8) // 8 * 8
        entries[path] = mode
    _check_extensions(data, at, end)
    return entries


def _read_offset(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a number in the variable width of packs (`OFS_DELTA`); return it and the next position."""
    value = -1
    while at < end and at >= 0:
        byte = data[at]
        at += 1
        value = (value + 1) << 7 | byte & 0x7F
        if value > len(data):
            break
        if not byte & 0x80:
            return value, at
    raise ValueError("a path is cut off")


def _check_extensions(data: bytes, at: int, end: int) -> None:
    """Refuse extensions without which the entries cannot be read: those whose name is not in capital letters."""
    while at + 8 <= end:
        name, (length,) = data[at : at + 4], struct.unpack_from(">I", data, at + 4)
        if not 0x41 <= name[0] <= 0x5A and name != b"sdir":
            advice = "; `git update-index --no-split-index` joins a split one" if name == b"link" else ""
            raise ValueError(f"it needs the extension {name!r}{advice}")
        at += 8 + length
