"""Removes expired runs, with their records, clones and checkpoints, and leftovers of dead processes."""

import fcntl
import os
import secrets
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import state_dir
from ringfence.errors import InfrastructureFault, RecordError
from ringfence.flock import try_lock
from ringfence.job.store import JobStore
from ringfence.journal import is_alive, list_runs, record_removals, runs_dir
from ringfence.removal import remove_tree
from ringfence.runtime.session.store import is_locked, sessions_dir
from ringfence.sandbox.workspace.record import load_record, open_store
from ringfence.sandbox.workspace.standalone import SANDBOX_PREFIX

_YOUNG_S = 3600.0
_FULL_BYTES = 1024**2
_GOING = ".removed-"
"""Prefix of the names of records that are being removed, so that a record exists completely or not at all."""


def expired_runs(older_than_s: float, keep: int) -> list[Path]:
    """Runs with sealed records that ended at least this long ago, except the newest `keep`; oldest first."""
    if not runs_dir().is_dir():
        return []
    oldest_kept = time.time() - older_than_s
    paths = [Path(summary.path) for summary in list_runs()[keep:] if summary.is_sealed]
    return [path for path in reversed(paths) if path.stat().st_mtime < oldest_kept and not is_alive(path)]


def is_disk_full() -> bool:
    """Whether the disk of the state directory is so full that no database can be written there."""
    try:
        return shutil.disk_usage(state_dir()).free < _FULL_BYTES
    except OSError:
        return False


async def make_room(paths: list[Path]) -> None:
    """Remove records of runs, and remains of removals, without writing; `remove_runs` does the rest afterwards.

    Raises:
        InfrastructureFault: A directory could not be removed.
    """
    await clear_removed()
    for path in paths:
        with suppress(OSError):  # on so full a disk, some file systems cannot even rename
            _set_aside(path)
    await clear_removed()


async def remove_runs(paths: list[Path], store: JobStore, *, by: str) -> None:
    """Remove runs with their records, and checkpoints that no other run needs. Runs without a record are forgotten.

    The chain of records gets an entry for each record before it is removed, so that its absence is not taken for
    tampering. A process that dies meanwhile leaves whole records, and remains that `clear_removed` and later removals
    remove.

    Args:
        paths: The directories of the runs.
        store: The store of jobs.
        by: The command that removes them, for the chain.

    Raises:
        InfrastructureFault: Git failed, or a directory could not be removed.
    """
    await anyio.to_thread.run_sync(partial(record_removals, [path.name for path in paths], by=by))
    there = [path for path in paths if path.is_dir()]
    kept = frozenset(path.name for path in _all_runs()) - {path.name for path in paths}
    kept |= {path.name for path in (state_dir() / "tmp").glob(f"{SANDBOX_PREFIX}*")}
    for path in there:
        try:
            going = _set_aside(path)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not remove {str(path)!r}: {exc.strerror}; see to its permissions"
            ) from exc
        with suppress(RecordError):  # the run never had checkpoints
            await open_store(load_record(going), state_dir()).gc(kept)
        await anyio.to_thread.run_sync(_remove, going)
    for path in paths:
        store.remove(path.name)


async def clear_removed() -> None:
    """Finish removals whose process died.

    Raises:
        InfrastructureFault: A directory could not be removed.
    """
    await remove_all([path for path in _all_runs() if path.name.startswith(_GOING)])


def _set_aside(path: Path) -> Path:
    """Rename a run's directory so that it is no longer a record, and return the new path."""
    return path.rename(path.with_name(f"{_GOING}{path.name}-{secrets.token_hex(4)}"))


def _all_runs() -> list[Path]:
    return sorted(runs_dir().iterdir()) if runs_dir().is_dir() else []


def abandoned_directories(older_than_s: float) -> list[Path]:
    """Leftover workspaces of verifications, and of sandboxes without a run, whose processes were killed."""
    oldest_kept = time.time() - older_than_s
    found = [
        path for prefix in ("replica-", SANDBOX_PREFIX) for path in (state_dir() / "tmp").glob(f"{prefix}*")
    ]
    return sorted(path for path in found if path.stat().st_mtime < oldest_kept and not _is_locked(path))


def _is_locked(directory: Path) -> bool:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return not try_lock(lock, fcntl.LOCK_SH, what=repr(str(directory)))
    finally:
        os.close(lock)


def abandoned_sessions(store: JobStore) -> list[Path]:
    """Sessions of clients of which no run is left; not recent ones, which may belong to a run that is just starting."""
    oldest_kept = time.time() - _YOUNG_S
    wanted = store.session_ids()
    there = [path for path in sorted(sessions_dir(state_dir()).glob("*")) if path.name not in wanted]
    return [path for path in there if path.stat().st_mtime < oldest_kept and not is_locked(path)]


async def remove_all(paths: list[Path]) -> None:
    """Remove directories of ringfence.

    Raises:
        InfrastructureFault: A directory could not be removed.
    """
    for path in paths:
        await anyio.to_thread.run_sync(_remove, path)


def _remove(path: Path) -> None:
    try:
        remove_tree(path)
    except OSError as exc:
        if not path.exists():  # another process has removed it
            return
        raise InfrastructureFault(
            f"could not remove {str(exc.filename)!r} in {str(path)!r}: {exc.strerror}; remove it by hand"
        ) from exc
