"""Whether the files that were loaded are still those on the disk: stale code must not run.

Of ringfence every module counts, also those that a fork would load later: half of one version and half of another are
worse than either. Of what it depends on, and of Python, the directories of what was loaded count, where whatever
installs, upgrades, replaces or removes a file leaves its mark: to look at each file would take longer than the fork. So
count the files that run code at each start, and the libraries that are mapped into memory, the system's too.
So do the authorities that are trusted in TLS: libraries read them when they are loaded.
"""

import os
import sys
from collections.abc import Iterator

import ringfence

Signs = dict[str, tuple[int, int, int] | None]
"""For each path what it is known by: when it was changed, which it is, how long; None: it is not there."""


def signs() -> Signs:
    """Of all that counts, as it is now."""
    found = dict(_package(os.path.dirname(ringfence.__file__)))  # noqa: PTH120 -- this is to be quick, all through
    for path in (*sys.path, sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")):  # noqa: PTH118
        found[path] = _sign(path)
    return found | {path: _sign(path) for path in _run_at_start()}


def _run_at_start() -> Iterator[str]:
    """The files by which a package adds directories to `sys.path`, or has code run (the module site)."""
    for folder in sys.path:
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names if name.endswith(".pth"))  # noqa: PTH118


def opened() -> Signs:
    """Where this process's modules came from, the files mapped into it, and the authorities that it has read."""
    import ssl

    trusted = ssl.get_default_verify_paths()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        paths = {line.rstrip("\n").split(" ", 5)[-1].strip() for line in file}
    paths |= {path for path in (trusted.cafile, trusted.capath) if path is not None}
    modules = (getattr(each, "__file__", None) for each in tuple(sys.modules.values()))
    paths |= {os.path.dirname(file) for file in modules if file}  # noqa: PTH120
    return {path: _sign(path) for path in paths if path.startswith("/")}


def again(known: Signs) -> Signs:
    """The signs of the same paths, as they are now."""
    return {path: _sign(path) for path in known}


def _package(folder: str) -> Iterator[tuple[str, tuple[int, int, int] | None]]:
    folders = [folder]
    for each in folders:
        with os.scandir(each) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                else:
                    yield entry.path, _of(entry.stat())


def _sign(path: str) -> tuple[int, int, int] | None:
    try:
        return _of(os.stat(path))  # noqa: PTH116
    except OSError:
        return None


def _of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ino, status.st_size
