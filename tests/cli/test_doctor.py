"""What `ringfence doctor` says of a machine, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_an_image_that_no_engine_can_use_is_no_fence(ringfence: Callable[..., Any]) -> None:
    """Who names an image asks about containers of it."""
    ended = ringfence("doctor", "--image", "nope")
    assert ended.code == 125
    assert "bubblewrap: ok" in ended.out
    assert ended.out.splitlines()[-1].startswith("Not ready; without the image: bubblewrap; ")


def test_each_limit_is_told_once(ringfence: Callable[..., Any]) -> None:
    """By what enforces it."""
    told = [line for line in ringfence("doctor").out.splitlines() if "disk" in line]
    assert told == ["  limit on disk: soft: watched, short bursts are not stopped"]


def test_the_last_line_is_the_verdict(ringfence: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what is ready and what is not, with a short reason; programs find it in the JSON."""
    monkeypatch.setenv("CONTAINER_HOST", "unix:///nowhere/podman.sock")
    ended = ringfence("doctor")
    assert ended.code == 0
    verdict = ended.out.splitlines()[-1]
    assert verdict.startswith("Ready: bubblewrap")
    assert "podman (" in verdict.partition("; not available: ")[2]
    assert json.loads(ringfence("doctor", "--json").out)["verdict"] == verdict


def test_the_verdict_names_a_configuration_that_is_not_valid(
    ringfence: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not ready before that is corrected; the exit code is that of a wrong configuration."""
    (place / "ringfence.yaml").write_text("sandbx: {}\n")
    monkeypatch.chdir(place)
    ended = ringfence("doctor")
    assert ended.code == 78
    start = "Not ready: the configuration here is not valid; ready once it is: bubblewrap"
    assert ended.out.splitlines()[-1].startswith(start)
