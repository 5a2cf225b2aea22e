"""`ringfence gc`: removing what is not needed any more."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

_REPLAY_S = 24 * 3600.0
"""No replay takes longer."""


def gc(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Remove records of runs older than this.")
    ] = "30d",
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=0, help="Always keep the N newest.")] = 20,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Close what dead processes left, and remove old runs. Their clones and their checkpoints go, too."""
    import anyio

    from ringfence.cli.plural import counted

    removed, containers = anyio.run(_collect, older_than, keep, dry_run)
    for path in removed:
        typer.echo(path.name)
    left = f" and {counted(containers, 'container')} that dead processes left" if containers else ""
    typer.echo(f"{'would remove' if dry_run else 'removed'} {counted(len(removed), 'run')}{left}", err=True)


async def _clear_engines() -> int:
    """Remove what dead processes left on container engines, also those that made no run; how many there were."""
    from contextlib import suppress

    from ringfence.errors import RingfenceError
    from ringfence.sandbox.registry import backend_names, get_backend

    removed = 0
    for name in backend_names():
        with suppress(RingfenceError):  # one that is not there now is cleared another time
            removed += await get_backend(name).clean_up(frozenset())
    return removed


async def _clear_holders() -> None:
    """Remove what holders that died left: their places, their sandboxes' remains."""
    from ringfence.config.paths import state_dir
    from ringfence.job.standing import clear_the_gone
    from ringfence.sandbox.pool.pool import Pool, PoolSize

    clear_the_gone()
    await Pool(state_dir() / "pool", PoolSize(0, 0.0)).sweep()


async def _collect(older_than: str, keep: int, dry_run: bool) -> "tuple[list[Path], int]":
    from ringfence.cli.saying import say
    from ringfence.config.units import parse_duration
    from ringfence.errors import UsageError
    from ringfence.job.asked.lending import revoke_the_dead
    from ringfence.job.retention import (
        abandoned_replicas,
        abandoned_sessions,
        expired_runs,
        remove_all,
        remove_runs,
    )
    from ringfence.job.sweep import close_the_dead

    if "0" in older_than and not older_than.strip().rstrip("smhd").strip("0. "):
        raise UsageError(
            f"--older-than {older_than!r} is no age; the shortest is 1ms, which takes every run that has ended "
            "(but --keep of them)"
        )
    try:
        seconds = parse_duration(older_than)
    except ValueError as exc:
        raise UsageError(f"--older-than: {exc}") from exc
    containers = 0
    if not dry_run:
        # First: to close a dead run is to clear the engines, too, and then nobody would know how many there were.
        containers = await _clear_engines()
    store = await close_the_dead(say)
    if not dry_run:
        await _clear_holders()
        await revoke_the_dead(say)
    paths = expired_runs(seconds, keep)
    if not dry_run:
        await remove_runs(paths, store)
        await remove_all([*abandoned_replicas(_REPLAY_S), *abandoned_sessions(store)])
    return paths, containers
