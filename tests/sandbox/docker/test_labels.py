"""Whose a container is, and whether anybody still needs it."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence.config.paths import state_dir
from ringfence.sandbox.docker.labels import (
    EXPIRES,
    HOLDER,
    INSTANCE,
    RUN,
    SANDBOX,
    Holder,
    instance_id,
    is_over,
    labels_for,
)


def test_instance_stays() -> None:
    """The name of this ringfence is made once for each state directory."""
    assert instance_id() == instance_id()
    assert (state_dir() / "instance").read_text().strip() == instance_id()


def test_instances_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two state directories are two instances."""
    first = instance_id()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path))
    assert instance_id() != first


def test_labels() -> None:
    """Instance, sandbox, run, holder and end are on everything; nobody's label takes their place."""
    labels = labels_for("abc", "run-1", 60, {"team": "x", INSTANCE: "forged"})
    assert (labels[INSTANCE], labels[SANDBOX], labels[RUN], labels["team"]) == (
        instance_id(),
        "abc",
        "run-1",
        "x",
    )
    assert time.time() < int(labels[EXPIRES]) < time.time() + 3600


def test_living_holder() -> None:
    """What a living process holds is not over, even past its end."""
    assert not is_over({HOLDER: str(Holder.current()), EXPIRES: "1"})


def test_dead_holder() -> None:
    """What a dead process held is over."""
    process = subprocess.Popen(["sleep", "60"])
    started = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    holder = replace(Holder.current(), pid=process.pid, started=started)
    assert holder.is_alive() is True
    process.kill()
    process.wait()
    assert is_over({HOLDER: str(holder), EXPIRES: str(int(time.time()) + 9999)})


@pytest.mark.parametrize(
    "change", [{"boot": "other"}, {"started": "1"}], ids=["another boot", "number used again"]
)
def test_holder_of_the_same_number(change: dict[str, str]) -> None:
    """A later process of the same number is not taken for the holder."""
    assert replace(Holder.current(), **change).is_alive() is False  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expires", "over"), [("1", True), ("99999999999", False), ("", False), ("x", False)]
)
def test_holder_out_of_sight(expires: str, over: bool) -> None:
    """Where the holder lives in another container the end decides."""
    holder = replace(Holder.current(), namespace="1")
    assert is_over({HOLDER: str(holder), EXPIRES: expires}) is over


@pytest.mark.parametrize("text", ["", "a:b", "a:b:1", "a:b:c:d"])
def test_no_holder(text: str) -> None:
    """A label that names no process is none."""
    assert Holder.parse(text) is None
