"""Manages the directory of a supervised sandbox in the state directory: its lock, socket, log and state file.

Its supervisor holds the lock for as long as it lives. The kernel releases the lock when the process dies in any way;
the state file is then out of date.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.abc import SocketListener, UNIXSocketStream

from ringfence.config.paths import make_private_dir, replace_state_file, state_dir
from ringfence.descriptor_stream import DescriptorStream, descriptor_stream
from ringfence.errors import DeathReason, InfrastructureFault, RecordError, UsageError, next_step
from ringfence.filesystem import short_path
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Facts
from ringfence.sandbox.spec import SandboxSpec

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_FORMAT = 3
_STATE_BYTES = 8 * 1024**2
_GONE = ".gone-"
_LOCK = ".lock"
_PATIENCE_S = 2.0
_REMOVAL_S = 600.0
_STEP_S = 0.005


@frozen
class SupervisorState:
    """The state that a supervisor stores of its sandbox, for clients that attach, list or clean up."""

    sandbox_id: str
    pid: int
    """The process id of the supervisor."""
    spec: SandboxSpec
    facts: Facts
    chosen_because: str
    created_at: str
    """UTC, ISO 8601."""
    started_s: float
    """The machine's monotonic clock at the start, so that ages do not jump with the wall clock."""
    directory_inside: str
    """The directory inside where commands start."""
    source: str | None = None
    """The host's directory that is shown there."""
    workspace: str | None = None
    """The workspace as the user named it."""
    run_id: str | None = None
    """The run whose record a standing sandbox writes."""
    idle_s: float | None = None
    policy: Mapping[str, Any] | None = None
    end: tuple[DeathReason | Literal["removed", "idle"], str] | None = None
    """(reason, detail), once the sandbox is gone."""

    @property
    def age_s(self) -> float:
        """The time since its start."""
        return max(0.0, time.monotonic() - self.started_s)


@frozen
class SandboxDirectory:
    """The directory of one supervised sandbox, whether it exists or not."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the sandbox."""
        return self.path.name

    @property
    def log_file(self) -> Path:
        """The file for stderr of the supervisor's interpreter."""
        return self.path / "log"

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def _state_file(self) -> Path:
        return self.path / "state.json"

    def is_alive(self) -> bool:
        """Whether the supervisor lives.

        Raises:
            InfrastructureFault: The lock cannot be tested.
        """
        try:
            fd = os.open(self._lock_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise _fault("open", self._lock_file, exc) from exc
        try:
            return not try_lock(fd, fcntl.LOCK_SH, what="a sandbox's directory")
        finally:
            os.close(fd)

    def claim(self) -> int:
        """Create the directory and lock it; of several callers one succeeds. Files of a dead supervisor are removed.

        Returns:
            The descriptor of the lock, for the supervisor to inherit.

        Raises:
            UsageError: A living supervisor has it.
            InfrastructureFault: It cannot be created.
        """
        folder = self.path.parent
        make_private_dir(folder)
        with locked(folder / _LOCK):  # one process at a time looks for a free name and takes it
            if self.path.is_dir():
                if self.is_alive():
                    raise UsageError(
                        f"there is a sandbox {self.name!r} already; take another name, or "
                        f"`ringfence sandbox rm {self.name}` first"
                    )
                self.remove()
            try:
                self.path.mkdir(mode=0o700)
                return _lock(self._lock_file)
            except OSError as exc:
                raise _fault("make", self.path, exc) from exc

    def remove(self) -> None:
        """Remove the directory. The name is free at once, and other processes never see it half removed.

        Raises:
            InfrastructureFault: It cannot be removed.
        """
        gone = self.path.with_name(f"{_GONE}{secrets.token_hex(6)}")
        try:
            self.path.rename(gone)
            remove_tree(gone)
        except FileNotFoundError:
            return  # another process was quicker
        except OSError as exc:
            raise _fault("remove", self.path, exc) from exc

    def remove_if_dead(self) -> None:
        """Remove the leftovers of a dead supervisor, unless another process has claimed the name since.

        Raises:
            InfrastructureFault: It cannot be removed.
        """
        with locked(self.path.parent / _LOCK):
            if not self.is_alive():
                self.remove()

    # --- the socket

    async def listen(self) -> SocketListener:
        """Listen on the socket, which is for the supervisor's user alone. Replaces the socket of a dead supervisor.

        Raises:
            InfrastructureFault: It cannot be created.
        """
        try:
            with short_path(self.path / "socket") as path:
                return await anyio.create_unix_listener(path, mode=0o600, backlog=64)
        except OSError as exc:
            raise _fault("listen on a socket in", self.path, exc) from exc

    def remove_socket(self) -> None:
        """Stop accepting clients."""
        with suppress(OSError):
            (self.path / "socket").unlink()

    async def connect(self) -> DescriptorStream:
        """Connect to the supervisor.

        Raises:
            OSError: No supervisor listens.
        """
        return descriptor_stream(await self.connect_socket())

    async def connect_socket(self) -> UNIXSocketStream:
        """Connect to the supervisor by a socket that can pass descriptors.

        Raises:
            OSError: No supervisor listens.
        """
        with short_path(self.path / "socket") as path, anyio.fail_after(_PATIENCE_S):
            return await anyio.connect_unix(path)

    # --- the state

    def write_state(self, state: SupervisorState) -> None:
        """Replace the state file in one step.

        Raises:
            InfrastructureFault: It cannot be written.
        """
        # Of the spec, only the fields that were set: they decide which limits may be soft.
        spec = state.spec.model_dump(exclude_unset=True)
        fields = {**vars(state), "spec": spec, "facts": asdict(state.facts)}
        # Names of files that are not UTF-8 hold surrogate escapes.
        data = json.dumps({"format": _FORMAT, **fields}, ensure_ascii=True, default=os.fspath)
        replace_state_file(self._state_file, data.encode())

    def read_state(self) -> SupervisorState | None:
        """Read the state file; None if the supervisor has not written it yet.

        Raises:
            RecordError: It is damaged, or of another version.
        """
        try:
            with self._state_file.open("rb") as file:
                data = file.read(_STATE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise InfrastructureFault(f"could not read {str(self._state_file)!r}: {exc.strerror}") from exc
        try:
            fields = json.loads(data)
            if fields.pop("format") != _FORMAT:
                raise ValueError("it has another format")
            return _decode(fields)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise RecordError(
                f"{str(self._state_file)!r} is damaged or of another version of ringfence: {exc}"
            ) from exc

    def note_end(self, state: SupervisorState, reason: Any, detail: str) -> None:
        """Store why the sandbox is gone. On a full disk the reason is lost; later callers learn only that it is gone."""
        with suppress(InfrastructureFault):
            self.write_state(replace(state, end=(reason, detail)))


def _decode(fields: dict[str, Any]) -> SupervisorState:
    facts = fields["facts"]
    for name in ("watched_paths", "tmpfs_paths", "notes"):
        facts[name] = tuple(facts[name])
    end = tuple(fields["end"]) if fields["end"] else None
    spec = SandboxSpec.model_validate(fields["spec"])
    return SupervisorState(**{**fields, "spec": spec, "facts": Facts(**facts), "end": end})


def standing_root() -> Path:
    """The directory that holds the standing sandboxes of this state directory."""
    return state_dir() / "standing"


def standing_directory(name: str) -> SandboxDirectory:
    """The directory of the standing sandbox `name`, whether it exists or not.

    Raises:
        UsageError: It is not a valid name.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a sandbox; take up to 63 of a-z, 0-9, '.', '_', '-', "
            "beginning with a letter or digit"
        )
    return SandboxDirectory(standing_root() / name)


def list_directories(folder: Path) -> list[SandboxDirectory]:
    """The directories of all sandboxes in a folder, by name, including those of dead supervisors."""
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [SandboxDirectory(path) for path in sorted(found)]


def find_by_run(run_id: str) -> str | None:
    """The name of the standing sandbox whose record is this run; None if there is no such sandbox."""
    for directory in list_directories(standing_root()):
        with suppress(RecordError):  # of another version
            state = directory.read_state()
            if state is not None and state.run_id == run_id:
                return directory.name
    return None


def remove_remnants(folder: Path) -> None:
    """Remove directories whose removal was interrupted, except those that a process may be removing now."""
    oldest_kept = time.time() - _REMOVAL_S
    for path in folder.glob(f"{_GONE}*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest_kept:
                remove_tree(path)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _PATIENCE_S
    # A process that tests whether the directory is locked holds the lock for microseconds.
    while not try_lock(fd, fcntl.LOCK_EX, what="a sandbox's directory"):
        if time.monotonic() >= deadline:
            os.close(fd)
            raise OSError(errno.EBUSY, "another process holds it")
        time.sleep(_STEP_S)
    return fd


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file that other processes hold only for moments.

    Raises:
        InfrastructureFault: It cannot be acquired in time.
    """
    try:
        fd = _lock(path)
    except OSError as exc:
        raise _fault("lock", path, exc) from exc
    try:
        yield
    finally:
        os.close(fd)


def _fault(verb: str, path: Path, error: OSError) -> InfrastructureFault:
    return InfrastructureFault(
        f"could not {verb} {str(path)!r}: {error.strerror}; {next_step(error, is_state=True)}"
    )
