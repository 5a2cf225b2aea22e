"""Interrupts from the user: once gently, twice at once."""

import signal
from collections.abc import Callable

import anyio


async def on_interrupt(act: Callable[[], None], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Call `act` at each SIGINT or SIGTERM, until cancelled."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _number in signals:
            act()
