"""Finds the directories of loops: rows and reports are in the state directory, repositories outside of it."""

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import NotFound, UsageError
from ringfence.flock import try_lock
from ringfence.frozen import frozen

_PROBE_S = 0.1
"""A process that tests whether the lock is held (`is_worked_on`) holds it for less than this."""
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


def new_loop_id() -> str:
    """Return a new loop id: the time (UTC) and a random suffix."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


@frozen
class LoopDirectory:
    """The directories of one loop."""

    id: str
    state: Path
    """The state directory."""

    @property
    def path(self) -> Path:
        """The directory with the loop's rows, patches and reports."""
        return self.state / "loops" / self.id

    @property
    def database(self) -> Path:
        """The SQLite file with its rows."""
        return self.path / "loop.db"

    @property
    def repository_dir(self) -> Path:
        """The directory that contains the loop's repository and its worktrees.

        It is outside of the state directory, as no workspace may be where records are.
        """
        import hashlib

        import platformdirs

        name = hashlib.sha256(str(self.state.resolve()).encode()).hexdigest()[:16]
        return Path(platformdirs.user_cache_dir("ringfence")) / "loops" / name / self.id

    @property
    def is_there(self) -> bool:
        """Whether the loop exists."""
        return self.database.is_file()

    def make(self) -> None:
        """Create the directories."""
        make_private_dir(self.path)
        make_private_dir(self.repository_dir)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the process that works on the loop.

        Raises:
            UsageError: Another process holds it.
        """
        import fcntl

        with (make_private_dir(self.path) / "lock").open("wb") as lock:
            deadline = time.monotonic() + _PROBE_S
            while not try_lock(lock.fileno(), fcntl.LOCK_EX, what=f"the lock of loop {self.id}"):
                if time.monotonic() < deadline:
                    time.sleep(0.005)
                    continue
                raise UsageError(
                    f"another process works on loop {self.id}; `ringfence loop logs --follow {self.id}` follows it, "
                    f"`ringfence loop cancel {self.id}` stops it"
                )
            yield

    @property
    def is_worked_on(self) -> bool:
        """Whether a process works on the loop."""
        import fcntl

        try:
            with (self.path / "lock").open("rb") as lock:
                return not try_lock(lock.fileno(), fcntl.LOCK_SH, what=f"the lock of loop {self.id}")
        except FileNotFoundError:
            return False


def loop_directories(state: Path | None = None) -> list[LoopDirectory]:
    """Return the directories of all loops in a state directory, the newest first."""
    state = state or state_dir()
    folder = state / "loops"
    names = (
        sorted((path.name for path in folder.iterdir() if _ID.fullmatch(path.name)), reverse=True)
        if folder.is_dir()
        else []
    )
    return [directory for name in names if (directory := LoopDirectory(name, state)).is_there]


def find_loop(reference: str | None, state: Path | None = None) -> LoopDirectory:
    """Return the loop with an id or with an id that ends with the reference; None or `last`: the newest loop.

    Raises:
        NotFound: No loop matches.
        UsageError: Several loops match.
    """
    directories = loop_directories(state)
    if reference in (None, "last"):
        if not directories:
            raise NotFound("there is no loop yet; `ringfence loop start --prd FILE` starts one")
        return directories[0]
    found = [
        directory
        for directory in directories
        if directory.id == reference or (reference and directory.id.endswith(reference))
    ]
    if len(found) != 1:
        how = "no loop" if not found else f"{len(found)} loops"
        error = UsageError if found else NotFound
        raise error(
            f"{how} named {str(reference)[:60]!r}; `ringfence loop ls` shows them, and "
            "`ringfence loop show ID --story STORY` one of its stories"
        )
    return found[0]
