"""How often something may happen: in bursts at first, then evenly."""

import time

import anyio


class Pace:
    """Lets through `burst` at once, and then `per_s` a second; who comes too early waits for his turn.

    The record keeps a line for each connection: a loop inside must not fill the disk with them.
    """

    def __init__(self, per_s: float, *, burst: int) -> None:
        self._step_s = 1 / per_s
        self._lead_s = burst / per_s
        self._next = time.monotonic() - self._lead_s

    async def wait(self) -> None:
        """Wait for one's turn."""
        now = time.monotonic()
        self._next = max(self._next, now - self._lead_s) + self._step_s
        if self._next > now:
            await anyio.sleep(self._next - now)
