"""How often something may happen."""

import time

from ringfence.egress.pace import Pace


async def test_burst_then_even() -> None:
    """A burst passes at once, and what comes after it waits for its turn."""
    pace = Pace(50.0, burst=10)
    began = time.monotonic()
    for _ in range(10):
        await pace.wait()
    at_once = time.monotonic() - began
    for _ in range(10):
        await pace.wait()
    assert at_once < 0.1
    assert time.monotonic() - began > 0.15
