"""Runs an executor: `python -m tests.engine.conformance.worker URL CONCURRENCY RECOVERIES EDITION`.

It runs the checks' workflows, prints its name on stdout when it is ready, and exits on SIGTERM, or when it has lost the
right to run workflows.
"""

import os
import signal
import sys
from functools import partial

import anyio
from tests.engine.conformance.workflows import workflows

from ringfence.engine import open_engine
from ringfence.engine.client import Engine


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _until_stopped(engine: Engine, tasks: anyio.abc.TaskGroup) -> None:
    await engine.stopped()
    tasks.cancel_scope.cancel()


async def _work(url: str, concurrency: int, recoveries: int, edition: int) -> None:
    run = workflows(_die, edition=edition)
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_engine(url, workflows=run, concurrency=concurrency, recoveries=recoveries) as engine:
            os.write(1, f"{engine.executor}\n".encode())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_stopped, engine, tasks)
                async for _ in signals:
                    tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(partial(_work, sys.argv[1], *map(int, sys.argv[2:5])))
