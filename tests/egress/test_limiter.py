"""How often something may happen."""

import time

import anyio

from ringfence.egress.limiter import RateLimiter


async def test_burst_then_even() -> None:
    """A burst passes at once, and what comes after it waits for its turn."""
    pace = RateLimiter(0.001, burst=10)
    with anyio.fail_after(60):
        for _ in range(10):
            await pace.wait()
    pace = RateLimiter(50.0, burst=10)
    began = time.monotonic()
    for _ in range(20):
        await pace.wait()
    assert time.monotonic() - began > 0.15
