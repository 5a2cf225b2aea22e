"""Where control groups are mounted and which of them a process is in."""

import os
import re
from pathlib import Path, PurePosixPath

from ringfence.frozen import frozen

PARENT = "ringfence"
"""All our control groups lie in a directory of this name; theirs is the sandbox's id."""

_OCTAL = re.compile(r"\\([0-7]{3})")


@frozen
class Hierarchy:
    """One mounted tree of control groups and where a process is in it."""

    version: int
    controllers: frozenset[str]
    """Of version 1: those of this mount. Of version 2: empty, each directory says itself."""
    mount: Path
    own: Path
    """Directory of the process's own group."""


def hierarchies(proc: Path, pid: str = "self") -> list[Hierarchy]:
    """All trees that `pid` is in and that can be seen from here; empty where there are none."""
    try:
        mounts = (proc / "self" / "mountinfo").read_text()
        memberships = (proc / pid / "cgroup").read_text()
    except OSError:
        return []
    paths = dict(_memberships(memberships))
    found = []
    for version, controllers, root, mount in _mounts(mounts):
        path = paths.get(controllers if version == 1 else frozenset())
        own = None if path is None else _below(mount, root, path)
        if own is not None and own.is_dir():
            found.append(Hierarchy(version, controllers, mount, own))
    return found


def members(directory: Path) -> list[int]:
    """Processes in a group itself, without its children; empty if it is gone."""
    try:
        return [int(word) for word in (directory / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def words(file: Path) -> frozenset[str]:
    """The words in a file of a group; empty if it is not there."""
    try:
        return frozenset(file.read_text().split())
    except OSError:
        return frozenset()


def counter(file: Path, name: str | None = None) -> int | None:
    """A number in a file: the only one, or the one behind `name`; None if it is not there."""
    try:
        text = file.read_text()
    except OSError:
        return None
    if name is None:
        return int(text) if text.strip().isdigit() else None
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None


def is_writable(directory: Path) -> bool:
    """Whether groups can be made in a directory and processes moved there (false on a read-only mount)."""
    return os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK)


def _memberships(text: str) -> list[tuple[frozenset[str], str]]:
    lines = (line.split(":", 2) for line in text.splitlines())
    return [(frozenset(filter(None, parts[1].split(","))), parts[2]) for parts in lines if len(parts) == 3]


def _mounts(text: str) -> list[tuple[int, frozenset[str], str, Path]]:
    """Version, controllers, root and mount point of each mounted tree."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        options = frozenset(kind[2].split(",")) - {"rw", "ro"}
        controllers = frozenset[str]() if version == 2 else _controllers(options)
        found.append((version, controllers, _unescape(fields[3]), Path(_unescape(fields[4]))))
    return found


def _controllers(options: frozenset[str]) -> frozenset[str]:
    """Super options of a version 1 mount that are controllers (or its name), not settings."""
    settings = {"xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods", "all", "none"}
    return frozenset(o for o in options - settings if not o.startswith("release_agent="))


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _below(mount: Path, root: str, path: str) -> Path | None:
    """Directory of group `path` where `root` is mounted; None where it lies outside what is mounted."""
    if "/.." in path or "/.." in root:
        return None
    try:
        return mount / PurePosixPath(path).relative_to(root)
    except ValueError:
        return None
