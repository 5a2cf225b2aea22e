"""`ringfence sandbox pool`: the sandboxes that are kept warm for runs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ringfence.cli.options import JsonOption
from ringfence.cli.output import print_answer
from ringfence.cli.sandbox.actions import age_of, run_interruptible
from ringfence.cli.settings import load_settings
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.sandbox.pool.pool import Pool


def status(*, json: JsonOption = False) -> None:
    """Show the warm sandboxes and how often they were used."""

    async def act() -> dict[str, Any]:
        pool = _pool()
        await pool.sweep()
        return _document(pool)

    document = run_interruptible(act)
    if json:
        print_answer(document, (), json=True)
        return
    for one in document["waiting"]:
        shown = (
            one["sandbox_id"] or "-",
            one["backend"] or "-",
            one["state"],
            one["age"],
            one["workspace"] or "-",
        )
        typer.echo(visible("{:<12}  {:<10}  {:<8}  {:>6}  {}".format(*shown), one_line=True))
    rate = "no requests yet" if document["hit_rate"] is None else f"{document['hit_rate']:.0%} hits"
    typer.echo(
        f"{len(document['waiting'])} waiting; {rate} ({document['hits']} warm, {document['misses']} cold, "
        f"{document['stale']} found unfit, {document['failed']} not started)"
    )
    if load_settings(Path()).settings.pool.size == 0:
        typer.echo("no pool is configured here: `pool: {size: N}` in ringfence.yaml keeps N warm", err=True)
    if document["last_failure"]:
        typer.echo(visible(f"last failure: {document['last_failure']}", one_line=True))


def stop() -> None:
    """Stop all warm sandboxes that no run uses.

    The next run fills the pool again.
    """
    ended = run_interruptible(lambda: _pool().drain())
    typer.echo(f"warm sandboxes ended: {ended}", err=True)


def _pool() -> "Pool":
    from ringfence.config.paths import state_dir
    from ringfence.sandbox.pool.pool import Pool, PoolSize

    return Pool(state_dir() / "pool", PoolSize(0, 0.0))


def _document(pool: "Pool") -> dict[str, Any]:
    waiting = [
        {
            "sandbox_id": None if state is None else state.sandbox_id,
            "backend": None if state is None else state.facts.backend,
            "state": "starting" if state is None else "ready",
            "workspace": None if state is None else state.workspace,
            **age_of(state),
        }
        for _place, state in pool.waiting()
    ]
    counts = pool.counts()
    return {"waiting": waiting, **asdict(counts), "hit_rate": counts.hit_rate}
