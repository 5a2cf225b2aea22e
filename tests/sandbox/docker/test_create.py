"""The request that creates a container: hardening without an exception."""

from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.docker.conftest import asked, engine_facts

from ringfence.sandbox import Mount, Placement, SandboxSpec
from ringfence.sandbox.base import BindMount
from ringfence.sandbox.container.hardened_container import ImageFacts
from ringfence.sandbox.docker.create import parse_image


def host(**arguments: Any) -> dict[str, Any]:
    """The `HostConfig` of a container."""
    made: dict[str, Any] = asked(**arguments)["HostConfig"]
    return made


def test_hardened() -> None:
    """No network, no capability, read-only, no new privileges, private namespaces, no init, no core files, no log."""
    made = asked()
    inner = made["HostConfig"]
    assert (made["User"], made["NetworkDisabled"], inner["NetworkMode"]) == ("1500:1500", True, "none")
    assert (inner["CapDrop"], inner["ReadonlyRootfs"], inner["Privileged"]) == (["ALL"], True, False)
    assert inner["SecurityOpt"] == ["no-new-privileges:true"]
    assert (inner["IpcMode"], inner["PidMode"], inner["CgroupnsMode"]) == ("private", "", "private")
    assert {"Name": "core", "Soft": 1, "Hard": 1} in inner["Ulimits"]
    assert (inner["Init"], inner["LogConfig"], inner["AutoRemove"]) == (False, {"Type": "none"}, False)


def test_the_guest_gets_the_filter() -> None:
    """The guest gets the system call filter and installs it; the engine's default filter stays on beside it."""
    assert bytes.fromhex(asked()["Cmd"][-1]) == b"filter"


def test_the_guest_is_a_program_of_the_image() -> None:
    """The image's PATH cannot make a file in a mount the guest's interpreter, which would run before any protection."""
    image = ImageFacts(
        "sha256:1",
        "a:1",
        {
            "PATH": "/w/.venv/bin:bin::/opt/x/../../w/bin:/shown/bin:/home/agent/bin:/opt/python/bin:/usr/bin",
            "LD_PRELOAD": "/w/evil.so /opt/own.so",
            "LD_LIBRARY_PATH": ":/w/lib:/opt/lib",
        },
        (),
    )
    placement = Placement(1500, 1500, Path("/w"), Path("/w"))
    spec = SandboxSpec(mounts=(Mount(source=Path("/srv"), target="/shown", read_only=False),))
    made = asked(spec=spec, placement=placement, image=image)["Env"]
    assert made == ["PATH=/opt/python/bin:/usr/bin", "LD_LIBRARY_PATH=/opt/lib", "LD_PRELOAD=/opt/own.so"]


def test_container_ends_with_its_connection() -> None:
    """Stdin ends when the connection does, and `docker stop` kills at once."""
    made = asked()
    assert (made["OpenStdin"], made["StdinOnce"], made["StopSignal"]) == (True, True, "SIGKILL")


def test_memory_is_memory_and_swap() -> None:
    """There is no swap beyond the memory limit."""
    inner = host(spec=SandboxSpec(memory="512m", cpus=1, pids=100))
    assert (inner["Memory"], inner["MemorySwap"]) == (2**29, 2**29)
    assert (inner["NanoCpus"], inner["PidsLimit"]) == (10**9, 100)


@pytest.mark.parametrize(("cpus", "cpuset"), [(0.5, "0"), (1, "0"), (2.5, "0,1,2"), (8, None), (9, None)])
def test_cpuset_matches_the_limit(cpus: float, cpuset: str | None) -> None:
    """The container sees as many processors as the limit amounts to."""
    assert host(spec=SandboxSpec(cpus=cpus)).get("CpusetCpus") == cpuset


def test_tmpfs_directories() -> None:
    """Only /tmp is noexec, unless the spec allows it; all tmpfs directories are bounded, nosuid and nodev."""
    places = host(spec=SandboxSpec(tmp="16m"))["Tmpfs"]
    assert set(places) == {"/tmp", "/var/tmp", "/home/agent"}
    assert all("nosuid,nodev" in text and "size=16777216" in text for text in places.values())
    assert (",noexec," in places["/tmp"], ",noexec," in places["/var/tmp"]) == (True, False)
    assert ",noexec," not in host(spec=SandboxSpec(tmp_exec=True))["Tmpfs"]["/tmp"]


def test_volumes_of_an_image() -> None:
    """A volume that an image declares becomes a bounded tmpfs, not unbounded disk."""
    facts = parse_image(
        "a:1", {"Id": "sha256:1", "Config": {"Volumes": {"/data": {}}, "Env": ["A=b=c", "D"]}}
    )
    assert facts.environment == {"A": "b=c", "D": ""}
    assert "/data" in host(image=facts)["Tmpfs"]


@pytest.mark.parametrize("place", ["/w", "/w/", "/x/../w", "//w/.git", "/data/."])
def test_no_volume_of_an_image_hides_a_mount(place: str) -> None:
    """A volume that an image declares at the workspace or at a mount does not replace it by a tmpfs."""
    facts = parse_image("a:1", {"Id": "sha256:1", "Config": {"Volumes": {place: {}, "/other": {}}}})
    mount = BindMount(Path("/git"), Path("/w/.git"), read_only=False)
    placement = Placement(1500, 1500, Path("/w"), Path("/w"), mounts=(mount,))
    spec = SandboxSpec(mounts=(Mount(source=Path("/srv/data"), target="/data"),))
    inner = host(image=facts, placement=placement, spec=spec)
    assert set(inner["Tmpfs"]) == {"/tmp", "/var/tmp", "/home/agent", "/other"}
    assert {"/w", "/w/.git", "/data"} <= {mount["Target"] for mount in inner["Mounts"]}


def test_workspace_at_its_own_path() -> None:
    """The workspace has the same path inside; its own mounts follow it, then those of the spec."""
    placement = Placement(
        1500,
        1500,
        Path("/w"),
        Path("/clone"),
        mounts=(BindMount(Path("/git"), Path("/w/.git"), read_only=False),),
    )
    spec = SandboxSpec(mounts=(Mount(source=Path("/cache"), target="/c"),))
    binds = host(spec=spec, placement=placement)["Mounts"]
    assert [(one["Source"], one["Target"], one["ReadOnly"]) for one in binds] == [
        ("/state/hosts", "/etc/hosts", True),
        ("/clone", "/w", False),
        ("/git", "/w/.git", False),
        ("/cache", "/c", True),
    ]


def test_read_only_mounts_are_not_recursive() -> None:
    """A read-only mount does not include mounts below its source, which would be writable."""
    placement = Placement(1500, 1500, Path("/w"), Path("/w"), workspace_read_only=True)
    workspace = host(placement=placement)["Mounts"][1]
    assert (workspace["ReadOnly"], workspace["BindOptions"]["NonRecursive"]) == (True, True)


def test_missing_mount_sources_are_not_created() -> None:
    """Mounts are of type `bind`, which needs an existing source; with `Binds` an engine would make it, as root."""
    assert "Binds" not in host()
    assert {one["Type"] for one in host()["Mounts"]} == {"bind"}


def test_image_by_its_digest() -> None:
    """A container is made from the image that was examined, not from a tag that may have moved since."""
    assert asked(image=ImageFacts("sha256:9", "a:1", {}, ()))["Image"] == "sha256:9"


def test_apparmor_where_there_is_one() -> None:
    """The engine's AppArmor profile is named where the machine has AppArmor."""
    facts = engine_facts(has_apparmor=True)
    assert "apparmor=docker-default" in host(facts=facts)["SecurityOpt"]


def test_rootless_podman_keeps_the_user() -> None:
    """In rootless Podman the caller's uid is the same inside, so that the caller owns new files."""
    assert host(facts=engine_facts(is_podman=True, is_rootless=True))["UsernsMode"] == "keep-id"


def test_network_by_name() -> None:
    """A network that the spec names is attached."""
    made = asked(SandboxSpec(network="lab", unsafe=("network",)))
    assert (made["NetworkDisabled"], made["HostConfig"]["NetworkMode"]) == (False, "lab")


def test_process_limit_leaves_room_for_gvisor() -> None:
    """The limit on processes is raised by the number of gVisor's own threads."""
    assert host(spec=SandboxSpec(pids=100, soft_limits=True), runtime="runsc")["PidsLimit"] == 2100


@pytest.mark.parametrize(("workspace", "is_covered"), [("/root/project", True), ("/srv/project", False)])
def test_volume_over_root_home(workspace: str, is_covered: bool) -> None:
    """Where the workspace lies below `/root`, which images close, an empty volume covers `/root`."""
    placement = Placement(1500, 1500, Path(workspace), Path("/clone"))
    kinds = {mount["Target"]: mount["Type"] for mount in host(placement=placement)["Mounts"]}
    assert (kinds.get("/root") == "volume") is is_covered
