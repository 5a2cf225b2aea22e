"""An engine that made something else than was asked is found out."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.sandbox.docker.conftest import asked

from ringfence.sandbox.docker import create

ASKED = asked(runtime="runc")


def mismatches(answer: dict[str, Any]) -> list[str]:
    """What is found to differ."""
    return list(create.mismatches(ASKED, answer))


def made(change: Callable[[dict[str, Any]], object] = lambda _one: None) -> dict[str, Any]:
    """An inspect's answer about a container made as asked, but for `change`."""
    answer: dict[str, Any] = {
        "Config": {"User": ASKED["User"]},
        "HostConfig": copy.deepcopy(ASKED["HostConfig"]),
        "Mounts": [
            {"Destination": one["Target"], "RW": not one["ReadOnly"], "Source": one["Source"], "Type": "bind"}
            for one in ASKED["HostConfig"]["Mounts"]
        ],
    }
    change(answer)
    return answer


def test_as_asked() -> None:
    """What was made as asked has no mismatch."""
    assert mismatches(made()) == []


def test_podmans_way_of_saying_it() -> None:
    """Podman writes processors as quota and period, and the capabilities one by one."""

    def podmans(answer: dict[str, Any]) -> None:
        host = answer["HostConfig"]
        host["NanoCpus"], host["CpuQuota"], host["CpuPeriod"] = 0, 200_000, 100_000
        host["CapDrop"] = [f"CAP_{one}" for one in ("CHOWN", "SETUID", "SETGID", "NET_BIND_SERVICE", "KILL")]

    assert mismatches(made(podmans)) == []


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "Memory": lambda one: one["HostConfig"].update(Memory=0),
    "MemorySwap": lambda one: one["HostConfig"].update(MemorySwap=-1),
    "PidsLimit": lambda one: one["HostConfig"].update(PidsLimit=None),
    "NanoCpus": lambda one: one["HostConfig"].update(NanoCpus=0),
    "Runtime": lambda one: one["HostConfig"].update(Runtime="other"),
    "ReadonlyRootfs": lambda one: one["HostConfig"].update(ReadonlyRootfs=False),
    "Privileged": lambda one: one["HostConfig"].update(Privileged=True),
    "NetworkMode": lambda one: one["HostConfig"].update(NetworkMode="host"),
    "User": lambda one: one["Config"].update(User="0:0"),
    "capabilities dropped": lambda one: one["HostConfig"].update(CapDrop=[]),
    "capabilities .* added": lambda one: one["HostConfig"].update(CapAdd=["SYS_ADMIN"]),
    "no-new-privileges": lambda one: one["HostConfig"].update(SecurityOpt=[]),
    "system call filter": lambda one: one["HostConfig"].update(
        SecurityOpt=["no-new-privileges", "seccomp=unconfined"]
    ),
    "PidMode": lambda one: one["HostConfig"].update(PidMode="host"),
    "UsernsMode": lambda one: one["HostConfig"].update(UsernsMode="host"),
    "devices": lambda one: one["HostConfig"].update(Devices=[{"PathOnHost": "/dev/kvm"}]),
    "nothing is mounted on '/w'": lambda one: one["Mounts"].pop(),
    "mount on '/etc/hosts' is writable": lambda one: one["Mounts"][0].update(RW=True),
    "not asked for": lambda one: one["Mounts"].append({"Destination": "/x", "Source": "/", "Type": "bind"}),
}


@pytest.mark.parametrize("said", CHANGES)
def test_told(said: str) -> None:
    """Each thing that differs is told by its name."""
    found = mismatches(made(CHANGES[said]))
    assert len(found) == 1
    assert pytest.importorskip("re").search(said, found[0])
