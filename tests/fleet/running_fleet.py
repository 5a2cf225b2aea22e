"""Runs a daemon in this process, for a fleet of one test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from ringfence.config.trust import trust_content
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.daemon.run import run_daemon

CREW = """
fleet:
  workers: 0
  timezone: UTC
{fleet}
agents:
  mender: {{prompt: mend it, workspace: "{folder}"}}
  tester: {{prompt: test it, workspace: "{folder}", enabled: false}}
"""


@asynccontextmanager
async def standing(
    folder: Path, *, fleet: str = "", log: Callable[[str], None] | None = None
) -> AsyncIterator[Daemon]:
    """Run a daemon until it is ready; without workers, so that its jobs stay as they are.

    Args:
        folder: The test's directory; the state directory is below it.
        fleet: Further lines of `fleet:`.
        log: Called with each warning of the daemon; without it, a warning fails the test.
    """
    file = folder / "ringfence.yaml"
    file.write_text(CREW.format(fleet="".join(f"  {line}\n" for line in fleet.splitlines()), folder=folder))
    trust_content(file, file.read_bytes())
    told: list[str] = []
    state = folder / "s"
    state.mkdir(mode=0o700, exist_ok=True)
    listen = log or told.append

    def take(line: str, /, *, level: str = "warning", **_fields: object) -> None:
        if level == "warning":
            listen(line)

    daemon = Daemon(file, state, {}, take)
    is_up = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await run_daemon(daemon, on_ready=is_up.set)

        tasks.start_soon(run)
        with anyio.fail_after(60):
            await is_up.wait()
        yield daemon
        for _ in range(2):
            daemon.stop()
    assert told == []
