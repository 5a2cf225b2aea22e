"""Opening the workspace for a run: one at a time works on its files; who comes later is refused, or waits."""

import time
from contextlib import AsyncExitStack

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import PolicyRefused
from ringfence.job.request import RunRequest
from ringfence.job.stopping import Stops
from ringfence.sandbox.base import Traits
from ringfence.sandbox.workspace.lock import BUSY
from ringfence.sandbox.workspace.open import Workspace, open_workspace

_LOOK_S = 0.1


async def claim(
    stack: AsyncExitStack, request: RunRequest, stops: Stops, *, run: str, traits: Traits
) -> Workspace | None:
    """Open a run's workspace until `stack` is closed; None if the user stopped it while it waited.

    Args:
        stack: Holds it.
        request: Its `wait_s` says how long another run may have the workspace meanwhile.
        stops: What interrupts stop.
        run: The run's id.
        traits: Of the backend.

    Raises:
        PolicyRefused: The workspace may not be one; or another run has it still.
    """
    deadline = time.monotonic() + request.wait_s
    is_told = False
    with stops.gentle():
        while True:
            try:
                return await stack.enter_async_context(
                    open_workspace(
                        request.workspace,
                        request.spec.mode,
                        state=state_dir(),
                        holder=run,
                        traits=traits,
                    )
                )
            except PolicyRefused as exc:
                if exc.rule != BUSY or time.monotonic() >= deadline:
                    raise
                if request.on_wait is not None and not is_told:
                    request.on_wait(str(exc).partition(";")[0])
                    is_told = True
            await anyio.sleep(_LOOK_S)
    return None
