"""What a standby loads before it listens: what the slow starters import, and what else they would make on first use."""

import gc
import importlib
import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ringfence.errors import InfrastructureFault

_MODULES = (
    "anthropic.resources.messages",
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "anyio._core._subprocesses",
    "anyio.to_thread",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "dbos._sys_db_postgres",
    "dbos._sys_db_sqlite",
    "encodings.ascii",
    "encodings.idna",
    "platformdirs.unix",
    "rich.console",
    "ringfence.cli.failing",
    "ringfence.cli.live",
    "ringfence.cli.loop_lines",
    "ringfence.cli.loop_live",
    "ringfence.cli.loop_look",
    "ringfence.cli.loop_start",
    "ringfence.cli.loop_table",
    "ringfence.cli.main",
    "ringfence.cli.ndjson",
    "ringfence.cli.quick",
    "ringfence.cli.quick_run",
    "ringfence.cli.run_task",
    "ringfence.cli.running",
    "ringfence.cli.summary",
    "ringfence.egress.conversation",
    "ringfence.egress.gateway",
    "ringfence.egress.gateway.direct",
    "ringfence.egress.gateway.serving",
    "ringfence.engine.dbos",
    "ringfence.engine.liveness.sqlite",
    "ringfence.job.asked.session",
    "ringfence.loop.drafting",
    "ringfence.loop.role.prompts",
    "ringfence.loop.running",
    "ringfence.loop.starting",
    "ringfence.loop.suite.python",
    "ringfence.loop.suite.streamed",
    "ringfence.model.scripted.server",
    "ringfence.model.through_gateway",
    "ringfence.runtime.api",
    "ringfence.runtime.client.claude",
    "ringfence.runtime.client.claude.stream",
    "ringfence.runtime.client.codex",
    "ringfence.runtime.client.native",
    "ringfence.runtime.client.program",
    "ringfence.runtime.client.runtime",
    "ringfence.runtime.client.version",
    "ringfence.sandbox.bubblewrap.backend",
    "ringfence.secret.source.environment",
    "ringfence.tool.edit_file",
    "ringfence.tool.find",
    "ringfence.tool.python_function",
    "ringfence.tool.read_file",
    "ringfence.tool.shell",
    "ringfence.tool.toolset",
    "ringfence.tool.write_file",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.http.httptools_impl",
)
"""What takes long, each with all that it imports."""

_HARMLESS = frozenset({"platform", "subprocess", "sysconfig"})
"""Who hands variables on to a program, or makes paths of them that are compared by themselves."""


def load() -> frozenset[bytes]:
    """Load it all; the names of variables that were asked for meanwhile.

    Raises:
        InfrastructureFault: Something has started a thread: forks would lack it.
    """
    gc.disable()  # all of it stays
    with _noted_reads() as read:
        for name in _MODULES:
            importlib.import_module(name)
        _make_ahead()
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    if len(threads) > 1:
        names = ", ".join(each.name for each in threading.enumerate())
        raise InfrastructureFault(f"what was loaded has started {len(threads) - 1} threads ({names})")
    _seed_in_forks()
    gc.freeze()
    return frozenset(read)


def _make_ahead() -> None:
    """What is made on first use, from nothing but the code."""
    from ringfence.cli.main import command

    command()


def _seed_in_forks() -> None:
    """Have each fork's numbers be its own. Python does that for `random` alone, not for others' generators."""
    for each in gc.get_objects():
        if type(each) is random.Random:
            os.register_at_fork(after_in_child=each.seed)


@contextmanager
def _noted_reads() -> Iterator[set[bytes]]:
    """The names of the environment's variables that are asked for."""
    read: set[bytes] = set()

    class Noting(dict[bytes, bytes]):
        def __getitem__(self, name: bytes) -> bytes:
            reader = sys._getframe(2).f_globals.get("__name__")  # behind the method of `os.environ`
            if reader not in _HARMLESS:
                read.add(name)
            return super().__getitem__(name)

    environment: Any = os.environ
    kept = environment._data
    environment._data = Noting(kept)
    try:
        yield read
    finally:
        environment._data = kept
