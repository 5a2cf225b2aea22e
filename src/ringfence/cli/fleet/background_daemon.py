"""Starts the daemon in the background: in its own session, without a parent, with its output in a log file."""

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
from ringfence.fleet.state_directory import why_taken
from ringfence.process import DEVNULL, start_process

_PROGRAM = "import os\nif os.fork(): os._exit(0)\nfrom ringfence.cli import main\nmain()\n"
_START_S = 30.0
_POLL_S = 0.1
_LOG_TAIL_BYTES = 1024 * 1024


def start_detached(arguments: list[str], log: Path, file: Path) -> int:
    """Start a `ringfence` command as the daemon, wait until it responds and return its process id.

    Args:
        arguments: Arguments after `ringfence`.
        log: The log file, to which its output is appended.
        file: The fleet's file.

    Raises:
        UsageError: A daemon is running already.
        InfrastructureFault: The daemon did not start; the message holds the last line of its log.
    """
    client = FleetClient()
    running = _pid(client)
    if running is not None:
        raise UsageError(why_taken(str(running), state_dir(), file))
    start_bytes = log.stat().st_size if log.exists() else 0
    read_end = anyio.run(_start, arguments, log)
    try:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            pid = _pid(client)
            if pid is not None:
                return pid
            if select.select([read_end], [], [], _POLL_S)[0]:
                break
    finally:
        os.close(read_end)
    raise InfrastructureFault(f"the daemon did not start: {_last_log_line(log, start_bytes)}")


async def _start(arguments: list[str], log: Path) -> int:
    """Start the process; return a descriptor that reaches its end when the daemon exits."""
    read_end, child_end = os.pipe2(os.O_CLOEXEC)
    output = open_log(log)
    try:
        process = await start_process(
            # -P: modules must not be imported from the current directory.
            [sys.executable, "-P", "-c", _PROGRAM, *arguments],
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(child_end,),
        )
        await process.wait()
    finally:
        os.close(output)
        os.close(child_end)
    return read_end


def _pid(client: FleetClient) -> int | None:
    try:
        answer = client.get("status")
    except (UsageError, InfrastructureFault):
        return None
    return int(answer["pid"]) if answer["is_ready"] else None


def _last_log_line(log: Path, start_bytes: int) -> str:
    """Return the last line that was written to the log after its first `start_bytes` bytes."""
    with log.open("rb") as file:
        file.seek(start_bytes)
        lines = file.read(_LOG_TAIL_BYTES).decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("ringfence: ") if lines else "it wrote nothing to its log"
