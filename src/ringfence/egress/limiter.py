"""Limits on the load that processes inside can cause on the host: a rate of events, and bytes held at once."""

import time
from dataclasses import dataclass

import anyio


class RateLimiter:
    """Admits `burst` events at once, and then `per_s` a second; an early one waits.

    The record has a line for each connection, so a loop inside could otherwise fill the disk.
    """

    def __init__(self, per_s: float, *, burst: int) -> None:
        self._step_s = 1 / per_s
        self._lead_s = burst / per_s
        self._next = time.monotonic() - self._lead_s

    async def wait(self) -> None:
        """Wait until the next event is admitted."""
        now = time.monotonic()
        self._next = max(self._next, now - self._lead_s) + self._step_s
        if self._next > now:
            await anyio.sleep(self._next - now)


@dataclass
class ByteQuota:
    """A number of bytes that all holders together may hold at once; a limit for each would not bound their sum."""

    left: int

    def reserve(self, count: int) -> bool:
        """Reserve `count` bytes; returns false, and reserves nothing, if fewer are left."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def release(self, count: int) -> None:
        """Return `count` bytes."""
        self.left += count
