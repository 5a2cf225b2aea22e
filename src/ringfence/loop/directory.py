"""Where loops are kept: their rows and reports in the state directory, their clones outside of it."""

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import UsageError
from ringfence.flock import try_lock
from ringfence.frozen import frozen

_LOOKERS_S = 0.1
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


def new_loop_id() -> str:
    """A name for a loop that nobody has used: when it was begun (UTC), and chance."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


@frozen
class LoopDirectory:
    """The directories of one loop."""

    id: str
    state: Path
    """The state directory."""

    @property
    def directory(self) -> Path:
        """Rows, patches, reports."""
        return self.state / "loops" / self.id

    @property
    def database(self) -> Path:
        """The SQLite file with its rows."""
        return self.directory / "loop.db"

    @property
    def clones(self) -> Path:
        """Its repository and the stories' work trees.

        Not in the state directory: no workspace may lie where records are.
        """
        import hashlib

        import platformdirs

        name = hashlib.sha256(str(self.state.resolve()).encode()).hexdigest()[:16]
        return Path(platformdirs.user_cache_dir("ringfence")) / "loops" / name / self.id

    @property
    def is_there(self) -> bool:
        """Whether there is such a loop."""
        return self.database.is_file()

    def make(self) -> None:
        """Make the directories."""
        make_private_dir(self.directory)
        make_private_dir(self.clones)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one process that works on it.

        Raises:
            UsageError: Another does.
        """
        import fcntl

        with (make_private_dir(self.directory) / "lock").open("wb") as lock:
            deadline = time.monotonic() + _LOOKERS_S
            while not try_lock(lock.fileno(), fcntl.LOCK_EX, what=f"the lock of loop {self.id}"):
                if time.monotonic() < deadline:  # who only looks whether it is held has it for a moment
                    time.sleep(0.005)
                    continue
                raise UsageError(
                    f"another process works on loop {self.id}; `ringfence loop logs --follow {self.id}` follows it, "
                    f"`ringfence loop cancel {self.id}` stops it"
                )
            yield

    @property
    def is_worked_on(self) -> bool:
        """Whether some process works on it now."""
        import fcntl

        try:
            with (self.directory / "lock").open("rb") as lock:
                return not try_lock(lock.fileno(), fcntl.LOCK_SH, what=f"the lock of loop {self.id}")
        except FileNotFoundError:
            return False


def loop_places(state: Path | None = None) -> list[LoopDirectory]:
    """All loops of a state directory, the newest first."""
    state = state or state_dir()
    folder = state / "loops"
    names = (
        sorted((path.name for path in folder.iterdir() if _ID.fullmatch(path.name)), reverse=True)
        if folder.is_dir()
        else []
    )
    return [place for name in names if (place := LoopDirectory(name, state)).is_there]


def find_loop(said: str | None, state: Path | None = None) -> LoopDirectory:
    """The loop of an id, of its end, or the last one.

    Raises:
        UsageError: There is none, or several end so.
    """
    places = loop_places(state)
    if said in (None, "last"):
        if not places:
            raise UsageError("there is no loop yet; `ringfence loop start --prd FILE` begins one")
        return places[0]
    found = [place for place in places if place.id == said or (said and place.id.endswith(said))]
    if len(found) != 1:
        how = "no loop" if not found else f"{len(found)} loops"
        raise UsageError(f"{how} named {str(said)[:60]!r}; `ringfence loop ls` shows them")
    return found[0]
