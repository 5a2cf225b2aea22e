"""Holding the workspace for a run: one at a time works on its files; who comes later is refused, or waits."""

import time
from contextlib import ExitStack

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import PolicyRefused
from ringfence.job.request import RunRequest
from ringfence.job.stopping import Stops
from ringfence.sandbox.workspace.lock import BUSY, claimed

_LOOK_S = 0.1


async def claim(
    claims: ExitStack, request: RunRequest, stops: Stops, *, run: str, is_fenced: bool, unseen: str | None
) -> bool:
    """Hold a run's workspace until `claims` is closed; False if the user stopped it while it waited.

    Args:
        claims: Takes the hold.
        request: Its `wait_s` says how long another run may have the workspace meanwhile.
        stops: What interrupts stop.
        run: The run's id.
        is_fenced: False for the bare host.
        unseen: Why this machine's directories cannot be mounted, if they cannot.

    Raises:
        PolicyRefused: The workspace may not be one; or another run has it still.
    """
    deadline = time.monotonic() + request.wait_s
    is_told = False
    with stops.gentle():
        while True:
            try:
                claims.enter_context(
                    claimed(
                        request.workspace,
                        request.spec.mode,
                        run=run,
                        state=state_dir(),
                        is_fenced=is_fenced,
                        unseen=unseen,
                    )
                )
                return True
            except PolicyRefused as exc:
                if exc.rule != BUSY or time.monotonic() >= deadline:
                    raise
                if request.on_wait is not None and not is_told:
                    request.on_wait(str(exc).partition(";")[0])
                    is_told = True
            await anyio.sleep(_LOOK_S)
    return False
