"""Removes what dead processes left on engines, found by labels: only containers and volumes of this installation."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ringfence.errors import RingfenceError
from ringfence.sandbox.container.labels import (
    INSTANCE,
    SANDBOX,
    container_name,
    instance_id,
    is_over,
)
from ringfence.sandbox.container.used_places import remember_place, used_places
from ringfence.sandbox.docker.address import Product
from ringfence.sandbox.docker.client import Engine, EngineError, open_engine
from ringfence.sandbox.docker.volumes import carrier_name

_FOLDER = ("docker", "engines")
_cleaned: set[str] = set()


def remember(product: Product, asked: str | None) -> None:
    """Record that this engine is about to hold something of ours, so that a later process cleans up there.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    remember_place(_FOLDER, {"product": product, "engine": asked})


async def remove_leftovers(
    product: Product, sandbox_ids: frozenset[str], *, dry_run: bool = False
) -> list[str]:
    """Remove leftovers of these sandboxes, and of all that are over, from every engine of a product used so far.

    An engine that does not respond now is skipped until the next call.

    Returns:
        The names of the things that were removed, or would be.
    """
    names: list[str] = []
    for place in used_places(_FOLDER):
        if place.get("product") != product:
            continue
        with suppress(RingfenceError):
            async with await open_engine(product, place.get("engine")) as engine:
                names += await clean_up_engine(engine, sandbox_ids, dry_run=dry_run)
    return names


async def clean_up_once(engine: Engine) -> None:
    """On this process's first use of an engine, remove what earlier processes left there."""
    if engine.address.url not in _cleaned:
        _cleaned.add(engine.address.url)
        with suppress(EngineError):  # a later start removes what cannot be removed now
            await clean_up_engine(engine, frozenset())


async def clean_up_engine(engine: Engine, sandbox_ids: frozenset[str], *, dry_run: bool = False) -> list[str]:
    """Remove this ringfence's containers and volumes of these sandboxes, and abandoned ones; return their names."""
    names = []
    ours = [f"{INSTANCE}={instance_id()}"]
    for row in await engine.containers(ours):
        is_to_go = _is_ours(row) and _is_to_go(row, sandbox_ids)
        if is_to_go and (dry_run or await engine.remove(str(row["Id"]))):
            names.append(str(row["Names"][0]).removeprefix("/"))
    if dry_run or engine.unseen is None:
        return names  # a volume is removed with its container; elsewhere nothing is uploaded
    for row in await engine.volumes(ours):
        if _is_to_go(row, sandbox_ids):
            with suppress(EngineError):  # its container is just being removed
                await engine.remove_volume(str(row["Name"]))
                names.append(f"volume {row['Name']}")
    return names


def _is_ours(row: Mapping[str, Any]) -> bool:
    """Whether a container has the name that goes with its labels.

    Labels alone are not enough: an image that a user commits from a sandbox's container inherits them, and so does every
    container of that image.
    """
    own = container_name(str((row.get("Labels") or {}).get(SANDBOX)))
    names = {str(name).removeprefix("/") for name in row.get("Names") or ()}
    return not names.isdisjoint((own, carrier_name(own)))


def _is_to_go(row: Mapping[str, Any], sandbox_ids: frozenset[str]) -> bool:
    labels = {str(key): str(value) for key, value in (row.get("Labels") or {}).items()}
    return labels.get(SANDBOX) in sandbox_ids or is_over(labels)
