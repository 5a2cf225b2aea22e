"""Runs a fleet's daemon, the only process that admits the fleet's jobs: start, serve, drain, end. It executes no job."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.daemon.drain import drain
from ringfence.fleet.daemon.leader_lock import LeaderLock
from ringfence.fleet.daemon.listeners import open_listeners
from ringfence.fleet.daemon.log_file import keep_short, log_file
from ringfence.fleet.daemon.question_deadlines import keep_deadlines
from ringfence.fleet.state_directory import exclusive, note_file

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
    lost: list[str] = []
    with exclusive(daemon.state, daemon.file):
        note_file(daemon.state, daemon.file)
        async with (
            _leading(daemon, lock, is_standby=is_standby),
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
            tasks.start_soon(keep_deadlines, daemon.database, daemon.log)
            tasks.start_soon(_watch_leader_lock, daemon, lock, lost)
            tasks.start_soon(keep_short, log_file(daemon.state), daemon.log)
            daemon.is_ready = True
            daemon.notifier.ready()
            on_ready()
            await daemon.stopping.wait()
            daemon.notifier.stopping()
            if not lost:  # otherwise another daemon runs the jobs
                await drain(daemon)
            tasks.cancel_scope.cancel()
        daemon.database.close()
        daemon.log(f"fleet {name!r} is down", event="fleet.stopped", level="info", fleet=name)
        if lost:
            raise InfrastructureFault(f"this daemon no longer runs its fleet: {lost[0]}")


@asynccontextmanager
async def _leading(daemon: Daemon, lock: LeaderLock, *, is_standby: bool) -> AsyncIterator[None]:
    """Hold the leader lock, so that only this daemon runs the database's fleet, and create the tables."""
    if is_standby and lock.is_local:
        raise UsageError(
            "--standby needs a database that several machines share; set `fleet.engine.type: postgres`"
        )
    reported = ""

    def stand_by(reason: str) -> None:
        """Log each reason to wait once, and raise if `stop` was called in the meantime."""
        nonlocal reported
        if daemon.stopping.is_set():
            raise InfrastructureFault("stopped before it took over from the daemon that runs the fleet")
        if reason != reported:
            reported = reason
            daemon.log(f"standing by: {reason}", event="fleet.standby", level="info")

    async with lock.taken(on_wait=stand_by if is_standby else None):
        daemon.database.create_tables()
        yield


async def _watch_leader_lock(daemon: Daemon, lock: LeaderLock, lost: list[str]) -> None:
    """Stop the daemon if another one took over the fleet while the database was unreachable."""
    lost.append(await lock.kept())
    daemon.stop()


async def _apply_retention(daemon: Daemon) -> None:
    """Apply the retention settings every few minutes until cancelled."""
    while True:
        await anyio.sleep(_RETENTION_S)
        try:
            while not (await daemon.apply_retention()).is_all:  # noqa: ASYNC110 -- the next batch follows after a pause
                await anyio.sleep(_RETENTION_PAUSE_S)
        except RingfenceError as exc:
            daemon.log(f"retention: {exc}", event="retention.failed")
        except Exception as exc:  # noqa: BLE001 -- a failed removal must not stop the daemon
            daemon.log(f"retention: internal error: {exc!r}", event="retention.failed")
