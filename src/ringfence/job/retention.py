"""How long runs are kept: their records, clones and checkpoints go together."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError
from ringfence.job.store import JobStore
from ringfence.journal import is_alive, runs_dir
from ringfence.sandbox.workspace.work import load_record, open_store


def expired_runs(older_than_s: float, keep: int) -> list[Path]:
    """Runs that ended so long ago, but for the newest `keep`; oldest first."""
    if not runs_dir().is_dir():
        return []
    oldest_kept = time.time() - older_than_s
    paths = sorted((path for path in runs_dir().iterdir() if path.is_dir()), reverse=True)[keep:]
    return [path for path in reversed(paths) if path.stat().st_mtime < oldest_kept and not is_alive(path)]


async def remove_runs(paths: list[Path], store: JobStore) -> None:
    """Remove runs: checkpoints that no other run needs, then the record.

    Raises:
        InfrastructureFault: Git failed.
    """
    kept = frozenset(path.name for path in runs_dir().iterdir()) - {path.name for path in paths}
    for path in paths:
        with suppress(RecordError):  # it never had checkpoints
            await open_store(load_record(path), state_dir()).gc(kept)
        await anyio.to_thread.run_sync(shutil.rmtree, path)
        store.remove(path.name)
