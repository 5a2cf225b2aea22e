"""Starts, drains and stops a daemon, which admits the jobs of its fleet and runs none."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import anyio

from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.daemon.drain import drain
from ringfence.fleet.daemon.leader_lock import LeaderLock
from ringfence.fleet.daemon.listeners import open_listeners
from ringfence.fleet.daemon.log_file import log_file, truncate_log
from ringfence.fleet.daemon.question_deadlines import expire_questions
from ringfence.fleet.state_directory import lock_state_directory, note_file

_RETENTION_S = 600.0
_RETENTION_PAUSE_S = 10.0


async def run_daemon(daemon: Daemon, *, on_ready: Callable[[], None], is_standby: bool = False) -> None:
    """Run a fleet until `Daemon.stop` is called.

    Args:
        daemon: The daemon.
        on_ready: Called once the daemon runs the fleet.
        is_standby: Wait while another daemon runs the fleet, and take over when that one has ended.

    Raises:
        UsageError: Another daemon uses the state directory, or `is_standby` is set and the database is SQLite,
            which no second daemon can share.
        InfrastructureFault: The database cannot be reached, or another daemon runs its fleet.
    """
    name = daemon.fleet.settings.name
    lock = LeaderLock(daemon.url, fleet=name)
    with lock_state_directory(daemon.state, daemon.file), closing(daemon.database):
        note_file(daemon.state, daemon.file)
        async with (
            _hold_leadership(daemon, lock, is_standby=is_standby),
            daemon.engine,
            open_listeners(daemon),
            anyio.create_task_group() as tasks,
        ):
            await daemon.scheduler.take(daemon.fleet)
            tasks.start_soon(daemon.triggers.run, daemon.fleet)
            tasks.start_soon(daemon.dispatcher.run)
            tasks.start_soon(daemon.scheduler.clock.run)
            tasks.start_soon(daemon.supervisor.run, daemon.fleet.settings.workers)
            tasks.start_soon(daemon.notifier.stay_alive)
            tasks.start_soon(_apply_retention, daemon)
            tasks.start_soon(expire_questions, daemon.database, daemon.log)
            tasks.start_soon(_stop_once_lost, daemon, lock)
            tasks.start_soon(truncate_log, log_file(daemon.state), daemon.log)
            daemon.is_ready = True
            daemon.notifier.ready()
            on_ready()
            await daemon.stopping.wait()
            daemon.notifier.stopping()
            if lock.lost_reason is None:  # otherwise another daemon runs the jobs
                await drain(daemon)
            tasks.cancel_scope.cancel()
        daemon.log(f"fleet {name!r} is down", event="fleet.stopped", level="info", fleet=name)
        if lock.lost_reason is not None:
            raise InfrastructureFault(f"another daemon has taken over the fleet: {lock.lost_reason}")


@asynccontextmanager
async def _hold_leadership(daemon: Daemon, lock: LeaderLock, *, is_standby: bool) -> AsyncIterator[None]:
    """Hold the leader lock, so that only this daemon runs the database's fleet, and create the tables."""
    if is_standby and lock.is_local:
        raise UsageError(
            "--standby needs a database that several machines share; set `fleet.engine.type: postgres`"
        )
    reported = ""

    def stand_by(reason: str) -> None:
        """Log the reason to wait when it changes, and raise if `stop` was called in the meantime."""
        nonlocal reported
        if daemon.stopping.is_set():
            raise InfrastructureFault("stopped before it took over from the daemon that runs the fleet")
        if reason != reported:
            reported = reason
            daemon.log(f"standing by: {reason}", event="fleet.standby", level="info")

    async with lock.hold(on_wait=stand_by if is_standby else None):
        daemon.database.create_tables()
        yield


async def _stop_once_lost(daemon: Daemon, lock: LeaderLock) -> None:
    """Stop the daemon if another one took over the fleet while the database was unreachable."""
    await lock.wait_until_lost()
    daemon.stop()


async def _apply_retention(daemon: Daemon) -> None:
    """Apply the retention settings every ten minutes until cancelled."""
    while True:
        await anyio.sleep(_RETENTION_S)
        try:
            while not (await daemon.apply_retention()).is_all:  # noqa: ASYNC110 -- the next batch follows after a pause
                await anyio.sleep(_RETENTION_PAUSE_S)
        except RingfenceError as exc:
            daemon.log(f"retention: {exc}", event="retention.failed")
        except Exception as exc:  # noqa: BLE001 -- a failed removal must not stop the daemon
            daemon.log(f"retention: internal error: {exc!r}", event="retention.failed")
