"""How long runs are kept: their records, clones and checkpoints go together."""

import time
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import state_dir
from ringfence.errors import InfrastructureFault, RecordError
from ringfence.job.store import JobStore
from ringfence.journal import is_alive, list_runs, runs_dir
from ringfence.removal import remove_tree
from ringfence.runtime.session.home import is_held, sessions_dir
from ringfence.sandbox.workspace.work import load_record, open_store

_YOUNG_S = 3600.0


def expired_runs(older_than_s: float, keep: int) -> list[Path]:
    """Runs that ended so long ago, but for the newest `keep`; oldest first."""
    if not runs_dir().is_dir():
        return []
    oldest_kept = time.time() - older_than_s
    paths = [Path(summary.path) for summary in list_runs()][keep:]
    return [path for path in reversed(paths) if path.stat().st_mtime < oldest_kept and not is_alive(path)]


async def remove_runs(paths: list[Path], store: JobStore) -> None:
    """Remove runs: checkpoints that no other run needs, then the record.

    Raises:
        InfrastructureFault: Git failed, or a directory could not be removed.
    """
    if not paths:
        return
    kept = frozenset(path.name for path in runs_dir().iterdir()) - {path.name for path in paths}
    for path in paths:
        with suppress(RecordError):  # it never had checkpoints
            await open_store(load_record(path), state_dir()).gc(kept)
        await anyio.to_thread.run_sync(_remove, path)
        store.remove(path.name)


def abandoned_replicas(older_than_s: float) -> list[Path]:
    """Workspaces of replays that were killed; a replay that ends removes its own."""
    oldest_kept = time.time() - older_than_s
    replicas = (state_dir() / "tmp").glob("replica-*")
    return sorted(path for path in replicas if path.stat().st_mtime < oldest_kept)


def abandoned_sessions(store: JobStore) -> list[Path]:
    """Sessions of clients of which no run is left. One that is young may be a run's that is just being begun."""
    oldest_kept = time.time() - _YOUNG_S
    wanted = store.session_ids()
    there = [path for path in sorted(sessions_dir(state_dir()).glob("*")) if path.name not in wanted]
    return [path for path in there if path.stat().st_mtime < oldest_kept and not is_held(path)]


async def remove_all(paths: list[Path]) -> None:
    """Remove directories of ours.

    Raises:
        InfrastructureFault: A directory could not be removed.
    """
    for path in paths:
        await anyio.to_thread.run_sync(_remove, path)


def _remove(path: Path) -> None:
    try:
        remove_tree(path)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not remove {str(exc.filename)!r} in {str(path)!r}: {exc.strerror}; remove it by hand"
        ) from exc
