"""What a run of the tests has left: processes that have its state directories, things on engines with its labels."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.forked import still_running

from ringfence.errors import RingfenceError
from ringfence.sandbox.container.labels import INSTANCE
from ringfence.sandbox.docker.address import Product
from ringfence.sandbox.docker.client import open_engine

_VARIABLES = (b"XDG_STATE_HOME", b"RINGFENCE_STATE_DIR")
_DEPTHS = ("*/", "*/*/", "*/*/*/")
"""Where state directories lie below the directory of a session's files."""


def processes_below(base: Path) -> Iterator[str]:
    """Processes, other than this one, whose state directory lies below a directory, or that were forked for tests."""
    yield from still_running()
    prefixes = tuple(name + b"=" + os.fsencode(base) + b"/" for name in _VARIABLES)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # gone meanwhile, or somebody else's
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(prefixes) for variable in variables):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                yield f"process {entry.name}: {os.fsdecode(words)[:200]}"


def instances_below(base: Path) -> frozenset[str]:
    """Names of the ringfences whose state directories lie below a directory."""
    return frozenset(file.read_text().strip() for depth in _DEPTHS for file in base.glob(f"{depth}instance"))


def engines_below(base: Path) -> frozenset[tuple[Product, str | None]]:
    """Engines that they have used: product, and address if one was asked for."""
    files = [file for depth in _DEPTHS for file in base.glob(f"{depth}docker/engines/*.json")]
    found = (json.loads(file.read_text()) for file in files)
    return frozenset((one["product"], one["engine"]) for one in found)


async def things_of(instances: frozenset[str], engines: frozenset[tuple[Product, str | None]]) -> list[str]:
    """Containers and volumes of these ringfences, on those of the engines that answer."""
    left: list[str] = []
    for product, asked in engines:
        with suppress(RingfenceError):  # an engine of a test's own, that is gone
            async with await open_engine(product, asked) as engine:
                rows = [("container", row["Names"], row) for row in await engine.containers([INSTANCE])]
                rows += [("volume", row["Name"], row) for row in await engine.volumes([INSTANCE])]
                mine = [(kind, name) for kind, name, row in rows if row["Labels"][INSTANCE] in instances]
                left += [f"{kind} {name} on {product}" for kind, name in mine]
    return left
