"""Interrupts from the user: once gently, twice at once."""

import signal
from collections.abc import Callable

import anyio


async def on_interrupt(act: Callable[[], None], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Call `act` at each SIGINT, SIGTERM or SIGHUP, until cancelled."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup says: go on
        numbers.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for _number in signals:
            act()
