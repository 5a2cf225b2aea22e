"""Notes the process of a run in the run's lock, so that another process can stop it after verifying its identity.

Only a process that ends one run on SIGTERM, and does nothing else, is noted: `ringfence run`, `exec`, `shell`, `claude`
and `codex`. Loops, workers and the user's programs run several things in one process.
"""

import os
import signal
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.journal import LOCK_NAME, is_alive
from ringfence.process import start_time

END_S = 300.0
"""How long a stopped run may take to deliver its work."""
_POLL_S = 0.1


def note_process(run_dir: Path) -> None:
    """Note that SIGTERM to this process ends the run whose lock it holds."""
    (run_dir / LOCK_NAME).write_text(f"{os.getpid()} {start_time(os.getpid())}")


def is_terminable(run_dir: Path) -> bool:
    """Whether a living process is noted for the run."""
    return _signal(run_dir, None)


def terminate(run_dir: Path) -> bool:
    """Send SIGTERM to the process of a run; return whether such a process was noted."""
    return _signal(run_dir, signal.SIGTERM)


async def wait_for_end(run_dir: Path) -> bool:
    """Wait until the process of a run has ended it; return whether it did in time."""
    with anyio.move_on_after(END_S):
        while await anyio.to_thread.run_sync(is_alive, run_dir):  # noqa: ASYNC110 - another process ends it
            await anyio.sleep(_POLL_S)
        return True
    return False


def _signal(run_dir: Path, number: signal.Signals | None) -> bool:
    """Signal the noted process if it is still the same one and the run's lock is held."""
    pid, _, started = (run_dir / LOCK_NAME).read_text().partition(" ")
    try:
        process = os.pidfd_open(int(pid))
    except (OSError, ValueError):  # the process is gone, or none was noted
        return False
    try:
        # With the descriptor open, no later process can get the pid between the two.
        if start_time(int(pid)) != started or not is_alive(run_dir):
            return False
        if number is not None:
            signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True
