"""What `ringfence doctor` says of a machine, and how it ends."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_an_image_that_no_engine_can_use_is_no_fence(ringfence: Callable[..., Any]) -> None:
    """Who names an image asks about containers of it."""
    ended = ringfence("doctor", "--image", "nope")
    assert ended.code == 125
    assert "bubblewrap: ok" in ended.out


def test_each_limit_is_told_once(ringfence: Callable[..., Any]) -> None:
    """By what enforces it."""
    told = [line for line in ringfence("doctor").out.splitlines() if "disk" in line]
    assert told == ["  limit on disk: soft: watched, short bursts are not stopped"]
