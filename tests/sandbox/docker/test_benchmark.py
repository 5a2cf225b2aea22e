"""The container checks of the CIS Docker Benchmark 1.6, section 5, restated on what the engine says of a container.

As docker-bench-security carries them out: each check reads `docker inspect`. Those about the whole machine (5.x on
`docker.sock` shares, daemon settings) hold by what is mounted. WARNINGS is the written list of what we do not do.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ringfence.sandbox import Sandbox
from ringfence.sandbox.docker.client import open_engine

pytestmark = pytest.mark.docker

Open = Callable[..., AbstractAsyncContextManager[Sandbox]]
Found = dict[str, Any]


def _sources(one: Found) -> list[str]:
    return [str(mount.get("Source")) for mount in one["Mounts"]]


CHECKS: dict[str, Callable[[Found, Found], bool]] = {
    "5.2 AppArmor profile, where the machine has AppArmor": lambda one, _host: (
        one["AppArmorProfile"] != "unconfined"
    ),
    "5.4 capabilities are restricted": lambda _one, host: host["CapDrop"] == ["ALL"] and not host["CapAdd"],
    "5.5 not privileged": lambda _one, host: not host["Privileged"],
    "5.6 no system directories": lambda one, _host: (
        not {"/", "/boot", "/dev", "/etc", "/lib", "/proc", "/sys", "/usr"} & set(_sources(one))
    ),
    "5.8 no privileged port, 5.9 none published": lambda _one, host: (
        not host["PortBindings"] and not host["PublishAllPorts"]
    ),
    "5.10 not the host's network": lambda _one, host: host["NetworkMode"] == "none",
    "5.11 memory is limited": lambda _one, host: 0 < host["Memory"] == host["MemorySwap"],
    "5.12 processors are limited": lambda _one, host: host["NanoCpus"] > 0,
    "5.13 root is read-only": lambda _one, host: bool(host["ReadonlyRootfs"]),
    "5.15 restarts are bounded": lambda _one, host: host["RestartPolicy"]["Name"] in ("", "no"),
    "5.16 processes of its own": lambda _one, host: host["PidMode"] == "",
    "5.17 IPC of its own": lambda _one, host: host["IpcMode"] == "private",
    "5.18 no device": lambda _one, host: not host["Devices"] and not host["DeviceRequests"],
    "5.19 limits of processes and files": lambda _one, host: (
        {row["Name"] for row in host["Ulimits"]} >= {"nofile", "core"}
    ),
    "5.20 mounts do not propagate": lambda one, _host: all(
        mount.get("Propagation") in ("rprivate", "") for mount in one["Mounts"]
    ),
    "5.21 names of its own": lambda _one, host: host["UTSMode"] == "",
    "5.22 seccomp is on": lambda _one, host: (
        not any(option.startswith("seccomp=") for option in host["SecurityOpt"])
    ),
    "5.25 control group of the engine's": lambda _one, host: host["CgroupParent"] == "",
    "5.26 no new privileges": lambda _one, host: "no-new-privileges:true" in host["SecurityOpt"],
    "5.27 health is checked": lambda one, _host: (
        one["Config"].get("Healthcheck", {}).get("Test") not in (None, ["NONE"])
    ),
    "5.29 processes are limited": lambda _one, host: host["PidsLimit"] > 0,
    "5.30 not the default bridge": lambda _one, host: host["NetworkMode"] not in ("default", "bridge"),
    "5.31 user namespaces are not the host's": lambda _one, host: host["UsernsMode"] != "host",
    "5.32 no engine socket": lambda one, _host: not any(source.endswith(".sock") for source in _sources(one)),
    "4.1 no root": lambda one, _host: one["Config"]["User"].split(":")[0] not in ("", "0", "root"),
    "2.x cgroup namespace of its own": lambda _one, host: host["CgroupnsMode"] == "private",
}

WARNINGS = {
    "5.27 health is checked": "the guest's heartbeat on the stream is the check; an engine's would run programs unseen",
}


async def test_only_listed_checks_fail(opener: Callable[[str], Open]) -> None:
    """Every check passes except those in WARNINGS, and each of these fails."""
    async with opener("docker")() as sandbox, await open_engine() as engine:
        one = dict(await engine.inspect(sandbox.session.fence.container))  # type: ignore[attr-defined]
    one["AppArmorProfile"] = one.get("AppArmorProfile") or ("unconfined" if engine.facts.has_apparmor else "")
    warned = {name for name, check in CHECKS.items() if not check(one, one["HostConfig"])}
    assert warned == WARNINGS.keys()
