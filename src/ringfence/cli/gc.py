"""`ringfence gc`: removes old runs, and what dead processes left."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import JsonOption
from ringfence.cli.output import counted, notify
from ringfence.cli.settings import duration_of
from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.escape import safe_json

if TYPE_CHECKING:
    from pathlib import Path

    from ringfence.fleet.retention import RetentionResult

_VERIFICATION_S = 24 * 3600.0
"""Upper bound of a verification's duration; older directories of verifications are abandoned."""


def gc(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Remove records of runs older than this.")
    ] = "30d",
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=0, help="Always keep the N newest.")] = 20,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    json: JsonOption = False,
) -> None:
    """Clean up after dead processes, and remove old runs.

    Removes their private copies and checkpoints, too. The jobs of a fleet are removed by its `fleet.retention`, and
    their records with them. Records that are not sealed always stay.
    """
    import anyio

    age_s = _age(older_than)
    jobs = anyio.run(_apply_retention, dry_run)
    if jobs is not None and not json:
        _print_removed(jobs, dry_run=dry_run)
    removed, containers, named = anyio.run(_collect, age_s, keep, dry_run)
    if json:
        document = {"schema_version": 1, "is_dry_run": dry_run, **_counts(jobs)}
        document |= {"runs": [path.name for path in removed], "containers": containers}
        typer.echo(safe_json(document, indent=2))
        return
    for name in (*named, *(path.name for path in removed)):
        typer.echo(name)
    left = f" and {counted(containers, 'container')} that dead processes left" if containers else ""
    typer.echo(f"{'would remove' if dry_run else 'removed'} {counted(len(removed), 'run')}{left}", err=True)


async def _apply_retention(dry_run: bool) -> "RetentionResult | None":
    """Remove jobs of the fleet by its retention; None if there is no fleet."""
    from ringfence.config.paths import state_dir

    if not (state_dir() / "fleet").is_dir():
        return None
    from ringfence.fleet.retention_command import apply_retention

    return await apply_retention(state_dir(), os.environ, dry_run=dry_run)


def _counts(removed: "RetentionResult | None") -> dict[str, object]:
    """Count the removed jobs of a fleet, for programs; all zero without a fleet."""
    if removed is None:
        return {"jobs": [], "records": 0, "size_bytes": 0, "is_all": True}
    return {
        "jobs": removed.jobs,
        "records": removed.runs,
        "size_bytes": removed.size_bytes,
        "is_all": removed.is_all,
    }


def _print_removed(done: "RetentionResult", *, dry_run: bool) -> None:
    for job in done.jobs:
        typer.echo(job)
    more = "" if done.is_all else "; there are more, for the next time"
    what = f"{counted(len(done.jobs), 'job')} with {counted(done.runs, 'record')}"
    typer.echo(f"{'would forget' if dry_run else 'forgot'} {what}, {done.size_bytes} bytes{more}", err=True)


async def without_fleet_runs(paths: "list[Path]") -> "list[Path]":
    """Filter out the runs that belong to jobs of a fleet."""
    from ringfence.config.paths import state_dir

    if not (state_dir() / "fleet").is_dir() and not os.environ.get("RINGFENCE_FLEET_DATABASE"):
        return paths
    from ringfence.fleet.retention_command import runs_of_fleets

    theirs = await runs_of_fleets(state_dir(), os.environ, [path.name for path in paths])
    return [path for path in paths if path.name not in theirs]


async def _clear_engines(*, dry_run: bool) -> "tuple[int, list[str]]":
    """Remove what dead processes left on container engines, with or without a run.

    Returns:
        The number of containers, and for a dry run their names.
    """
    from ringfence.sandbox.registry import backend_names, get_backend

    found: list[str] = []
    for name in backend_names():
        with suppress(RingfenceError):  # an engine that does not respond is cleaned up another time
            found += await get_backend(name).remove_leftovers(frozenset(), dry_run=dry_run)
    found = list(dict.fromkeys(found))
    return len(found), sorted(found) if dry_run else []


async def _clear_dead_supervisors() -> None:
    """Remove the directories and sandboxes of dead supervisors."""
    from ringfence.config.paths import state_dir
    from ringfence.job.standing_sandbox import remove_dead
    from ringfence.sandbox.pool.pool import Pool, PoolSize

    remove_dead()
    await Pool(state_dir() / "pool", PoolSize(0, 0.0)).sweep()


def _age(older_than: str) -> float:
    if "0" in older_than and not older_than.strip().rstrip("smhd").strip("0. "):
        raise UsageError(
            f"--older-than {older_than!r} is not an age; the shortest is 1ms, which takes every run that has ended "
            "(but --keep of them)"
        )
    return duration_of("--older-than", older_than)


async def _collect(seconds: float, keep: int, dry_run: bool) -> "tuple[list[Path], int, list[str]]":
    from ringfence.config.paths import state_dir
    from ringfence.job.garbage_collection import (
        abandoned_directories,
        abandoned_sessions,
        clear_removed,
        expired_runs,
        is_disk_full,
        make_room,
        remove_all,
        remove_runs,
    )
    from ringfence.job.interrupted_runs import recover_runs
    from ringfence.sandbox.workspace.run_as import clear_scratch_directories
    from ringfence.secret import revoke_abandoned

    # This comes first: closing a dead run also removes its containers, which could not be counted afterwards.
    containers, named = await _clear_engines(dry_run=dry_run)
    early: list[Path] = []
    if is_disk_full():
        # No database can be written before there is free space.
        early = await without_fleet_runs(expired_runs(seconds, keep))
        if dry_run:
            return early, containers, named
        await make_room(early)
        await clear_scratch_directories()
        if not early and is_disk_full():
            raise InfrastructureFault(
                f"the disk of {str(state_dir())!r} is full, and no run is old enough to be removed; lower --older-than "
                "and --keep, or make room by hand"
            )
    store = await recover_runs(notify)
    if not dry_run:
        await _clear_dead_supervisors()
        await revoke_abandoned(state_dir(), notify)
        await clear_scratch_directories()
    paths = [*early, *await without_fleet_runs(expired_runs(seconds, keep))]
    if not dry_run:
        await clear_removed()
        await remove_runs(paths, store, by="gc")
        await remove_all([*abandoned_directories(_VERIFICATION_S), *abandoned_sessions(store)])
    return paths, containers, named
