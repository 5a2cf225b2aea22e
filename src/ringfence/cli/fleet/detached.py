"""The daemon in the background: in a session of its own, belonging to nobody, its words in a log."""

import os
import select
import sys
import time
from pathlib import Path

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.client import FleetClient
from ringfence.fleet.daemon.log_file import open_log
from ringfence.fleet.noted import why_taken
from ringfence.process import DEVNULL, start_process

_PROGRAM = "import os\nif os.fork(): os._exit(0)\nfrom ringfence.cli import main\nmain()\n"
_START_S = 30.0
_LOOK_S = 0.1
_WORDS_BYTES = 1024 * 1024


def start_detached(words: list[str], log: Path, file: Path) -> int:
    """Start a `ringfence` command that becomes the daemon, and wait until that answers; returns its process's id.

    Args:
        words: What follows `ringfence`.
        log: Where its words go, after those that are there.
        file: The fleet's.

    Raises:
        UsageError: There is one already.
        InfrastructureFault: It does not come up; its last word says why.
    """
    client = FleetClient()
    running = _pid(client)
    if running is not None:
        raise UsageError(why_taken(str(running), state_dir(), file))
    began = log.stat().st_size if log.exists() else 0
    life = anyio.run(_start, words, log)
    try:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            pid = _pid(client)
            if pid is not None:
                return pid
            if select.select([life], [], [], _LOOK_S)[0]:
                break
    finally:
        os.close(life)
    raise InfrastructureFault(f"the daemon did not come up: {_last_word(log, began)}")


async def _start(words: list[str], log: Path) -> int:
    """Start it; returns a descriptor that ends when it does."""
    life, its_life = os.pipe2(os.O_CLOEXEC)
    output = open_log(log)
    try:
        process = await start_process(
            # -P: the current directory must not be where modules come from.
            [sys.executable, "-P", "-c", _PROGRAM, *words],
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(its_life,),
        )
        await process.wait()
    finally:
        os.close(output)
        os.close(its_life)
    return life


def _pid(client: FleetClient) -> int | None:
    try:
        answer = client.get("status")
    except (UsageError, InfrastructureFault):
        return None
    return int(answer["pid"]) if answer["is_ready"] else None


def _last_word(log: Path, began: int) -> str:
    """The last line of what was said since the log was so long."""
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read(_WORDS_BYTES).decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("ringfence: ") if lines else "it left no word"
