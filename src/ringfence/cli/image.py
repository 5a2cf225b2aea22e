"""`ringfence image`: build, list, remove and show the images for containers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, setting_option
from ringfence.cli.output import counted, note, print_answer
from ringfence.errors import UsageError
from ringfence.escape import visible
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.sandbox.docker.client import Engine
    from ringfence.sandbox.docker.image.build import BuildOptions, Built
    from ringfence.sandbox.docker.image.recipe import Target
    from ringfence.sandbox.docker.image.store import StoredImage


_EngineOption = Annotated[str | None, setting_option("engine")]
_PodmanOption = Annotated[
    bool, typer.Option("--podman", help="Use Podman's engine instead of the configured one.")
]
_MB = 1000**2


def build(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="base, polyglot, operator, agents.")
    ] = None,
    *,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Build from the distribution's packages, without a registry.")
    ] = False,
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="URL", help="Where --bootstrap gets packages from.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild existing images, for newer packages.")
    ] = False,
    without_host_ca: Annotated[
        bool, typer.Option("--without-host-ca", help="Do not add this machine's own certificate authorities.")
    ] = False,
    engine: _EngineOption = None,
    podman: _PodmanOption = False,
    json: JsonOption = False,
) -> None:
    """Build images, and print their names.

    The default is base. An image that exists and has the same inputs is used again.
    """
    import anyio

    from ringfence.sandbox.docker.image.build import BuildOptions

    wanted = [_target(name) for name in targets or ["base"]]
    if mirror is not None and not bootstrap:
        raise UsageError(f"--mirror {mirror!r} has no effect without --bootstrap; add it, or leave both")
    options = BuildOptions(
        bootstrap=bootstrap, mirror=mirror, rebuild=rebuild, trust_host=not without_host_ca
    )
    built = anyio.run(_build, wanted, options, _Place(engine, podman), json)
    rows = [
        {**_row(one.image), "was_there": one.was_there, "seconds": round(one.seconds, 1)} for one in built
    ]
    print_answer({"images": rows}, (), json=json)


def ls(*, engine: _EngineOption = None, podman: _PodmanOption = False, json: JsonOption = False) -> None:
    """List the images of ringfence, the newest first."""
    import anyio

    images = anyio.run(_list, _Place(engine, podman))
    if not images and not json:
        typer.echo("no images yet; `ringfence image build` makes one", err=True)
    rows = [_row(image) for image in images]
    lines = (
        f"{image.name}  {'current' if row['is_current'] else 'STALE':7}  {_size(image)}  {image.created}"
        for image, row in zip(images, rows, strict=True)
    )
    print_answer({"images": rows}, lines, json=json)


def show(
    name: Annotated[str, typer.Argument(metavar="IMAGE", help="A target, a name or an id.")],
    *,
    engine: _EngineOption = None,
    podman: _PodmanOption = False,
    json: JsonOption = False,
) -> None:
    """Show what an image is made of, and its size.

    Also shows what its tools need beyond a plain sandbox.
    """
    import anyio

    document = anyio.run(_show, name, _Place(engine, podman))
    print_answer(document, _lines(document), json=json)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for key, value in _for_people(document).items():
        title = _TITLES.get(key, key)
        if value in (None, "", [], {}):
            continue
        if isinstance(value, dict):
            yield f"{title}:"
            yield from (f"  {what}: {needed}" for what, needed in value.items())
        else:
            yield f"{title}: {', '.join(value) if isinstance(value, list) else value}"


def rm(
    names: Annotated[list[str] | None, typer.Argument(metavar="IMAGE", help="Targets, names or ids.")] = None,
    *,
    stale: Annotated[
        bool, typer.Option("--stale", help="Remove images that a build would not reuse.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Remove all images of ringfence.")] = False,
    engine: _EngineOption = None,
    podman: _PodmanOption = False,
) -> None:
    """Remove images that no container uses.

    An image that a container uses stays, and is named.
    """
    import anyio

    if not (names or stale or every):
        raise UsageError("nothing to remove; name images, or give --stale or --all")
    removed = anyio.run(_remove, names or [], stale, every, _Place(engine, podman))
    for name in removed:
        typer.echo(visible(name, one_line=True))
    stay = [name for name, is_gone in removed.items() if not is_gone]
    if len(removed) > len(stay) or not stay:
        typer.echo(f"removed {counted(len(removed) - len(stay), 'image')}", err=True)
    for name in stay:
        note(
            f"{name}: only its names were removed; images that stand on it keep it, and their removal frees it"
        )


_TITLES = {
    "names": "also named",
    "base_name": "stands on",
    "base_digest": "its digest",
    "authorities": "authorities added",
    "entrypoint": "entry point",
}


def _for_people(document: dict[str, Any]) -> dict[str, Any]:
    """The document of `show --json`, with related figures grouped."""
    rest = dict(document)
    size, budget = rest.pop("size_bytes"), rest.pop("budget_bytes")
    shown = _size_of(size, budget, is_within=rest.pop("is_within_budget"))
    state = "current" if rest.pop("is_current") else "STALE, a build would make it anew"
    others = [name for name in rest.pop("names") if name != rest["name"]]
    return {"name": rest.pop("name"), "names": others, "state": state, "size": shown, **rest}


def _target(name: str) -> "Target":
    from ringfence.sandbox.docker.image.recipe import Target

    try:
        return Target(name)
    except ValueError:
        raise UsageError(f"unknown image {name!r}; known: {', '.join(Target)}") from None


@frozen
class _Place:
    """The name of the engine."""

    engine: str | None
    podman: bool


@asynccontextmanager
async def _engine(place: _Place) -> "AsyncIterator[Engine]":
    """The engine that sandboxes would use, by option, environment and files."""
    from ringfence.config import Flag, load
    from ringfence.sandbox.docker.client import open_engine

    flags = [Flag("sandbox.engine", "--engine", place.engine)] if place.engine is not None else []
    sandbox = load(Path.cwd(), flags=flags).settings.sandbox
    is_podman = place.podman or sandbox.backend == "podman"
    async with await open_engine("podman" if is_podman else "docker", sandbox.engine) as opened:
        yield opened


async def _build(
    targets: "list[Target]", options: "BuildOptions", place: _Place, quiet: bool
) -> "list[Built]":
    from ringfence.sandbox.docker.image.build import build_image

    built = []
    async with _engine(place) as engine:
        for target in targets:
            built.append(await build_image(engine, target, options, note))
            _report(built[-1])
            if not quiet:
                typer.echo(built[-1].image.name)
    return built


def _report(built: "Built") -> None:
    how = "was there" if built.was_there else f"built in {built.seconds:.0f} s"
    note(f"{built.image.target}: {how}, {_size(built.image)}")


def _size(image: "StoredImage") -> str:
    return _size_of(image.size_bytes, image.budget_bytes, is_within=image.is_within_budget)


def _size_of(size_bytes: int, budget_bytes: int | None, *, is_within: bool) -> str:
    size = f"{size_bytes / _MB:.0f} MB"
    if budget_bytes is None:
        return size
    return f"{size} {'of' if is_within else 'OVER BUDGET of'} {budget_bytes // _MB} MB"


def _row(image: "StoredImage") -> dict[str, Any]:
    from ringfence.sandbox.docker.image.store import is_current

    return {
        "name": image.name,
        "target": image.target,
        "names": list(image.references),
        "id": image.id,
        "is_current": is_current(image),
        "size_bytes": image.size_bytes,
        "budget_bytes": image.budget_bytes,
        "is_within_budget": image.is_within_budget,
        "version": image.version,
        "created": image.created,
        "inputs": image.inputs,
        "source": image.source,
        "base_name": image.base_name,
        "base_digest": image.base_digest,
        "authorities": image.authorities,
    }


async def _list(place: _Place) -> "list[StoredImage]":
    from ringfence.sandbox.docker.image.store import list_images

    async with _engine(place) as engine:
        return await list_images(engine)


async def _show(name: str, place: _Place) -> dict[str, Any]:
    from ringfence.sandbox.docker.image.recipe import target_facts
    from ringfence.sandbox.docker.image.store import find_image

    async with _engine(place) as engine:
        image = await find_image(engine, name)
        description = await engine.image(image.id)
    config = description.get("Config") or {}
    known = target_facts(image.target)
    return {
        **_row(image),
        "summary": known.summary if known else "",
        "user": config.get("User", ""),
        "entrypoint": list(config.get("Entrypoint") or ()),
        "command": list(config.get("Cmd") or ()),
        "layers": len((description.get("RootFS") or {}).get("Layers") or ()),
        "needs": dict(known.needs) if known else {},
    }


async def _remove(names: list[str], stale: bool, every: bool, place: _Place) -> dict[str, bool]:
    """Remove images; return their names, and whether each is gone."""
    from ringfence.sandbox.docker.image.store import (
        find_image,
        is_current,
        is_there,
        list_images,
        remove_image,
    )

    async with _engine(place) as engine:
        images = [await find_image(engine, name) for name in names]
        if stale or every:
            images += [one for one in await list_images(engine) if every or not is_current(one)]
        removed: dict[str, StoredImage] = {}
        for image in images:
            if image.name not in removed:
                await remove_image(engine, image)
                removed[image.name] = image
        # Queried at the end, as images below a removed one may have been removed after it.
        return {name: not await is_there(engine, image) for name, image in removed.items()}
