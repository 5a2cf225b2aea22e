"""Keeps the unpacked copies of stored records on this machine, up to a limit of their number and size."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.removal import remove_tree

_MIN_FREE_BYTES = 512 * 1024**2
_PARTIAL_AGE_S = 6 * 3600.0
"""The age at which a partial copy is taken for one that its process has left behind."""
_FILE_COST_BYTES = 4096
"""What a file takes at least; small files count as this."""


@dataclass(frozen=True)
class CacheLimits:
    """The limits of the copies on this machine; those that were used longest ago are removed first."""

    records: int = 200
    size_bytes: int = 16 * 1024**3


class RecordCache:
    """The copies of records in a directory. All methods block.

    Args:
        directory: The directory, which need not exist.
        limits: The limits of the copies together. The copy that was added last is kept in any case.
    """

    def __init__(self, directory: Path, limits: CacheLimits) -> None:
        self._directory, self._limits = directory, limits

    def find(self, run_id: str) -> Path | None:
        """Return the copy of a record; None if there is none."""
        found = self._directory / run_id
        if not found.is_dir():
            return None
        with suppress(OSError):  # another process has removed it in the meantime
            os.utime(found)
        return found

    def add(self, run_id: str, fill: Callable[[Path], None]) -> Path:
        """Return the directory of a new copy, and remove old copies beyond the limits.

        Args:
            run_id: The run.
            fill: Writes the files of the record into the given directory, and calls `check_room` for each.
        """
        found = self._directory / run_id
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{run_id}-", dir=self._directory))
        try:
            fill(partial)
            with suppress(FileExistsError, OSError):  # another process has fetched it in the meantime
                partial.rename(found)
                os.utime(found)
        finally:
            if partial.is_dir():
                remove_tree(partial)
        self._shrink(run_id)
        return found

    def check_room(self, size_bytes: int) -> None:
        """Check that the disk has room for a file.

        Raises:
            InfrastructureFault: It would be nearly full.
        """
        if shutil.disk_usage(self._directory).free - size_bytes < _MIN_FREE_BYTES:
            raise InfrastructureFault(
                f"the disk of {str(self._directory)!r} is nearly full, so no record is fetched; free some space"
            )

    def remove(self, run_id: str) -> None:
        """Remove the copy of a record, if there is one. No process sees a part of it under its name."""
        removed = self._directory / f".{run_id}-removed-{os.getpid()}-{time.monotonic_ns()}"
        try:
            (self._directory / run_id).rename(removed)
        except OSError:
            return
        remove_tree(removed)

    def _shrink(self, kept: str) -> None:
        oldest_partial = time.time() - _PARTIAL_AGE_S
        copies, count, size_bytes = [], 0, 0
        for path, used_at in self._entries():
            if path.name.startswith("."):
                if used_at < oldest_partial:
                    remove_tree(path)
                continue
            copies.append((used_at, _size_of(path), path.name))
            count, size_bytes = count + 1, size_bytes + copies[-1][1]
        for _, size, name in sorted(copies):
            if count <= self._limits.records and size_bytes <= self._limits.size_bytes:
                return
            if name != kept:
                self.remove(name)
                count, size_bytes = count - 1, size_bytes - size

    def _entries(self) -> Iterator[tuple[Path, float]]:
        for path in self._directory.iterdir():
            with suppress(OSError):  # another process has removed it in the meantime
                yield path, path.stat(follow_symlinks=False).st_mtime


def _size_of(directory: Path) -> int:
    size = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            with suppress(OSError):
                size += max(_FILE_COST_BYTES, (Path(folder) / name).stat(follow_symlinks=False).st_size)
    return size
