"""Which containers take no commands, because the engine's machine is in reach from them."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ringfence.egress.engine.policy import host_power, replaceable_mount, volume_names

POWERFUL: dict[str, dict[str, Any]] = {
    "privileged": {"Privileged": True},
    "host processes": {"PidMode": "host"},
    "host network": {"NetworkMode": "host"},
    "all capabilities": {"CapAdd": ["ALL"]},
    "one capability": {"CapAdd": ["CAP_SYS_ADMIN"]},
    "capability that is not known": {"CapAdd": ["NET_RAW", "BPF"]},
    "device": {"Devices": [{"PathOnHost": "/dev/sda"}]},
    "any device": {"DeviceCgroupRules": ["b *:* rwm"]},
    "device by its driver": {"DeviceRequests": [{"Driver": "nvidia"}]},
    "kernel settings": {"ReadonlyPaths": [], "MaskedPaths": ["/proc/kcore"]},
}


def inspected(*mounts: dict[str, Any], **host: Any) -> dict[str, Any]:
    """A container as the engine tells of it."""
    return {"Id": "1", "HostConfig": host, "Mounts": list(mounts)}


def bind(source: str, *, writable: bool = True) -> dict[str, Any]:
    """A directory of the engine's machine."""
    return {"Type": "bind", "Source": source, "RW": writable}


@pytest.mark.parametrize("name", POWERFUL)
def test_powerful(name: str) -> None:
    """A container from which the engine's machine is in reach takes no commands."""
    assert host_power(inspected(**POWERFUL[name]))


@pytest.mark.parametrize(
    "source",
    ["/", "/var", "/etc", "/run", "/proc", "/home", "/home/somebody", "/root", "/var/lib", "/var/lib/docker"],
)
@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_places_of_the_machine(source: str, writable: bool) -> None:
    """A place that holds the machine's own things whole, in whichever way it is mounted."""
    assert host_power(inspected(bind(source, writable=writable)))


@pytest.mark.parametrize("source", ["/var/run/docker.sock", "/run/containerd", "/dev/sda", "/srv/x.sock"])
def test_ways_to_services_and_devices(source: str) -> None:
    """What answers there does so however it is mounted."""
    assert host_power(inspected(bind(source, writable=False)))


@pytest.mark.parametrize("source", ["/etc/cron.d", "/usr/local/bin", "/sys/fs/cgroup", "/var/spool/cron"])
def test_single_places_to_be_written(source: str) -> None:
    """What the machine runs or obeys may be read, and not written."""
    assert host_power(inspected(bind(source)))
    assert host_power(inspected(bind(source, writable=False))) is None


def test_a_volume_that_is_a_directory_of_the_machine() -> None:
    """Its options say so, which the container does not."""
    container = inspected(
        {"Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v/_data", "RW": True}
    )
    options = {"type": "none", "o": "bind", "device": "/"}
    assert volume_names(container) == ("v",)
    assert host_power(container, {"v": {"Options": options}})
    assert host_power(container, {"v": {"Options": None}}) is None
    assert host_power(container, {"v": {"Options": {"type": "nfs", "device": ":/export"}}}) is None


def test_ordinary() -> None:
    """An ordinary container takes commands."""
    mounts = (
        {"Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v/_data", "RW": True},
        bind("/etc/localtime", writable=False),
        bind("/home/somebody/lab/data"),
        bind("/srv/data"),
    )
    host = {"CapAdd": ["NET_ADMIN"], "Devices": [], "PidMode": "", "ReadonlyPaths": ["/proc/sys"]}
    assert host_power(inspected(*mounts, **host)) is None
    assert host_power(inspected(CapAdd=None, ReadonlyPaths=None)) is None


@pytest.mark.parametrize("mode", ["container:abc", "ns:/proc/1/ns/net"])
def test_namespaces_of_others(mode: str) -> None:
    """A container that shares a namespace with another one, or with a path, takes no commands."""
    assert host_power({"Id": "1", "HostConfig": {"NetworkMode": mode}, "Mounts": []})


@pytest.mark.parametrize("source", ["//etc", "/srv/../etc", "/./etc", "///etc/"])
def test_a_place_in_another_spelling(source: str) -> None:
    """A path means the same place however it is written."""
    assert host_power(inspected(bind(source)))


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("/work/app", False),
        ("/work/app/data", True),
        ("/work/app/../app/data", True),
        ("//work/app/data", True),
        ("/work/application", False),
        ("/work", False),
    ],
)
def test_a_mount_that_the_agent_can_replace(source: str, is_refused: bool) -> None:
    """A directory below the workspace can become a link, which the engine follows at the next start."""
    refused = replaceable_mount(inspected(bind(source)), {}, [PurePosixPath("/work/app")])
    assert (refused is not None) is is_refused


def test_a_volume_that_the_agent_can_replace() -> None:
    """A volume may be a directory below the workspace under another name."""
    mount = {"Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v"}
    volumes = {"v": {"Options": {"device": "/work/app/data", "type": "none", "o": "bind"}}}
    assert replaceable_mount(inspected(mount), volumes, [PurePosixPath("/work/app")])


@pytest.mark.parametrize(
    "option", ["seccomp=unconfined", "apparmor:unconfined", "label=disable", "systempaths=unconfined"]
)
def test_security_options(option: str) -> None:
    """A container whose confinement was changed takes no commands; one without new privileges does."""
    container = {"Id": "1", "HostConfig": {"SecurityOpt": ["no-new-privileges:true"]}, "Mounts": []}
    assert host_power(container) is None
    container["HostConfig"] = {"SecurityOpt": [option]}
    assert host_power(container)


@pytest.mark.parametrize("source", ["/home/u/work/.ssh", "/root/.ssh", "/etc/shadow", "/srv/u/.kube/config"])
def test_credentials_of_the_machine(source: str) -> None:
    """Keys and passwords are not shown to a command, not even to be read."""
    assert host_power(inspected(bind(source, writable=False)))


@pytest.mark.parametrize(
    "volume",
    [
        {"Driver": "rclone", "Options": {"remote": "/etc"}},
        {
            "Driver": "local",
            "Options": {"type": "overlay", "o": "lowerdir=/etc,upperdir=/tmp/u,workdir=/tmp/w"},
        },
    ],
    ids=["driver", "overlay"],
)
def test_volumes_of_unknown_places(volume: dict[str, Any]) -> None:
    """A volume whose files may be any directory of the machine."""
    mount = {"Type": "volume", "Name": "v", "Source": "/var/lib/docker/volumes/v"}
    assert host_power(inspected(mount), {"v": volume})
    assert host_power(inspected(mount), {"v": {"Driver": "local", "Options": {}}}) is None


def test_a_mount_through_a_link_to_the_workspace(tmp_path: Path) -> None:
    """The directory lies below the workspace by whichever path it was mounted."""
    (tmp_path / "app" / "data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "app")
    workspace = PurePosixPath(tmp_path / "app")
    assert replaceable_mount(inspected(bind(str(tmp_path / "link" / "data"))), {}, [workspace])
    assert replaceable_mount(inspected(bind(str(tmp_path / "link"))), {}, [workspace]) is None
