"""What an interrupt stops."""

import anyio
import pytest

from ringfence.job.stops import Stops

pytestmark = pytest.mark.anyio


async def test_the_first_stops_the_part_and_no_more():
    """What comes after the part goes on."""
    stops, after = Stops(), False
    with stops.run:
        with stops.stopped_by_any_interrupt():
            stops.stop()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        after = True
    assert after


async def test_the_second_stops_everything():
    """Also what comes after the part."""
    stops, after = Stops(), False
    with stops.run:
        with stops.stopped_by_any_interrupt():
            stops.stop()
            stops.stop()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        after = True
    assert not after


async def test_one_that_came_early_stops_every_part_that_follows():
    """An interrupt between two parts is not lost."""
    stops = Stops()
    stops.stop("because")
    with anyio.fail_after(5), stops.stopped_by_any_interrupt() as scope:
        await anyio.sleep_forever()
    assert (scope.cancelled_caught, stops.reason) == (True, "because")
