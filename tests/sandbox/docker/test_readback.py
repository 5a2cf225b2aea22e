"""An engine that made another container than was requested is detected."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.sandbox.docker.conftest import asked

from ringfence.sandbox.docker import create

ASKED = asked(runtime="runc")


def mismatches(answer: dict[str, Any]) -> list[str]:
    """The differences that are found."""
    return list(create.mismatches(ASKED, answer))


def made(change: Callable[[dict[str, Any]], object] = lambda _one: None) -> dict[str, Any]:
    """An engine's description of a container that was made as requested, except for `change`."""
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


def test_container_as_requested() -> None:
    """A container that was made as requested has no mismatch."""
    assert mismatches(made()) == []


def test_podman_description() -> None:
    """Podman describes processors as quota and period, and lists the capabilities one by one."""

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
def test_each_difference_is_named(said: str) -> None:
    """Each difference is reported by its name."""
    found = mismatches(made(CHANGES[said]))
    assert len(found) == 1
    assert pytest.importorskip("re").search(said, found[0])
