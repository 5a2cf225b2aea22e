"""Labels: which process holds a container, and whether it is still needed."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from ringfence.config.paths import state_dir
from ringfence.sandbox.container.labels import (
    EXPIRES,
    HOLDER,
    INSTANCE,
    RUN,
    SANDBOX,
    holder_of,
    instance_id,
    is_over,
    labels_for,
)


def test_instance_id_is_kept() -> None:
    """The id of this ringfence is made once for each state directory."""
    assert instance_id() == instance_id()
    assert (state_dir() / "instance").read_text().strip() == instance_id()


def test_instances_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two state directories have two instance ids."""
    first = instance_id()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path))
    assert instance_id() != first


def test_labels() -> None:
    """Everything is labelled with instance, sandbox, run, holder and expiry; a user's labels cannot replace these."""
    labels = labels_for("abc", "run-1", 60, {"team": "x", INSTANCE: "forged"})
    assert (labels[INSTANCE], labels[SANDBOX], labels[RUN], labels["team"]) == (
        instance_id(),
        "abc",
        "run-1",
        "x",
    )
    assert time.time() < int(labels[EXPIRES]) < time.time() + 3600


def test_living_holder() -> None:
    """What a living process holds is never over, even past its expiry."""
    assert not is_over({HOLDER: holder_of(os.getpid()), EXPIRES: "1"})


def test_dead_holder() -> None:
    """What a dead process held is over, even if the process is still a zombie."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    labels = {HOLDER: holder_of(process.pid), EXPIRES: str(int(time.time()) + 9999)}
    assert not is_over(labels)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_over(labels)
    process.communicate()
    assert is_over(labels)


def changed_holder(**change: str) -> str:
    """The holder label of this process with one part changed."""
    parts = dict(zip(("boot", "namespace", "pid", "started"), holder_of(os.getpid()).split(":"), strict=True))
    return ":".join((parts | change).values())


@pytest.mark.parametrize(
    "change", [{"boot": "other"}, {"started": "1"}], ids=["another boot", "number used again"]
)
def test_holder_with_a_reused_pid(change: dict[str, str]) -> None:
    """A later process with the same pid is not taken for the holder."""
    assert is_over({HOLDER: changed_holder(**change)})


@pytest.mark.parametrize(
    "holder",
    [changed_holder(namespace="1"), "", "a:b", "a:b:1", "a:b:c:d"],
    ids=["another container", "empty", "two parts", "three parts", "no number"],
)
@pytest.mark.parametrize(
    ("expires", "over"), [("1", True), ("99999999999", False), ("", False), ("x", False)]
)
def test_holder_out_of_sight(holder: str, expires: str, over: bool) -> None:
    """Where the holder lives in another container, or its label names no process, the expiry decides."""
    assert is_over({HOLDER: holder, EXPIRES: expires}) is over
