"""Engines that cannot mount this machine's directories, and what is refused there."""

from pathlib import Path

import pytest
from tests.sandbox.docker.conftest import asked, engine_facts

from ringfence.errors import PolicyRefused
from ringfence.sandbox import Placement, SandboxSpec
from ringfence.sandbox.base import Launch, UploadScope
from ringfence.sandbox.container.hardened_container import ImageFacts
from ringfence.sandbox.docker.address import Address
from ringfence.sandbox.docker.client import Engine
from ringfence.sandbox.docker.create import check_files, parse_image, with_ids_inside
from ringfence.sandbox.spec import Mount

_HERE, _THERE = "unix:///var/run/docker.sock", "ssh://build@elsewhere"


def engine(url: str = _HERE, **facts: object) -> Engine:
    """An engine to which no connection is made."""
    made = Engine(Address(url, "asked for"))
    made.facts = engine_facts(**facts)
    return made


_OURS, _THEIRS = (ImageFacts("sha256:1", "a:1", {}, (), is_own=is_own) for is_own in (True, False))
_ROOTS = Placement(87_463, 87_463, Path("/w"), Path("/w"), is_idmapped=True)


def launch(upload: UploadScope = "none", spec: SandboxSpec | None = None, uid: int = 1500) -> Launch:
    """The launch of a sandbox with a workspace."""
    return Launch(
        "abc", spec or SandboxSpec(), Placement(uid, uid, Path("/w"), Path("/c"), upload=upload), ()
    )


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (engine(), None),
        (engine(is_podman=True, is_rootless=True), None),
        (engine(_THERE), "does not see this machine's files"),
        (engine("tcp://10.0.0.1:2376"), "does not see this machine's files"),
        (engine(is_rootless=True), "under other uids"),
        (engine(has_user_namespace=True), "under other uids"),
    ],
    ids=["here", "rootless podman", "ssh", "tcp", "rootless docker", "userns-remap"],
)
def test_engines_that_cannot_mount_host_directories(place: Engine, told: str | None) -> None:
    """Remote engines, and engines that give containers other uids, cannot mount directories of this machine."""
    reason = place.unseen
    assert (reason is None) if told is None else (reason is not None and told in reason)


@pytest.mark.parametrize("place", [engine(_THERE), engine(is_rootless=True)], ids=["ssh", "rootless docker"])
def test_a_mounted_workspace_is_refused(place: Engine) -> None:
    """Such an engine refuses a workspace that would have to be mounted, and takes one that is uploaded."""
    check_files(place, launch("all"), _THEIRS, is_gvisor=False)
    with pytest.raises(PolicyRefused, match="mode 'clone'"):
        check_files(place, launch(), _THEIRS, is_gvisor=False)


def test_mounts_on_a_remote_engine_are_refused() -> None:
    """A mount that a remote engine cannot make is refused, not left out."""
    spec = SandboxSpec(mounts=(Mount(source=Path("/srv/cache"), target="/cache"),))
    with pytest.raises(PolicyRefused, match="'/srv/cache' cannot be mounted"):
        check_files(engine(_THERE), launch("all", spec), _THEIRS, is_gvisor=False)


def test_remote_podman_is_refused() -> None:
    """A remote Podman is refused, as it cannot fill a volume through a container; the error says what to use."""
    with pytest.raises(PolicyRefused, match="use Podman's socket on this machine"):
        check_files(engine(_THERE, is_podman=True), launch("all"), _THEIRS, is_gvisor=False)


def test_roots_files_in_gvisor_are_refused() -> None:
    """In gVisor files are opened as root, which an idmapped mount does not map: nothing could be made inside."""
    shown = Launch("abc", SandboxSpec(), _ROOTS, ())
    check_files(engine(), shown, _OURS, is_gvisor=False)
    with pytest.raises(PolicyRefused, match="use mode 'clone', or --sandbox docker, podman"):
        check_files(engine(), shown, _OURS, is_gvisor=True)


def test_roots_files_need_an_image_of_ours() -> None:
    """A foreign image may install no filter, and could make set-user-ID files of root's: the mount is refused."""
    with pytest.raises(PolicyRefused, match=r"did not build image 'a:1'.*use mode 'clone'"):
        check_files(engine(), Launch("abc", SandboxSpec(), _ROOTS, ()), _THEIRS, is_gvisor=False)


@pytest.mark.parametrize(
    ("names", "labels", "is_own"),
    [
        (["localhost/ringfence/base:0.2.0"], {"ringfence.image.target": "base"}, True),
        (["somebody/elses:1"], {"ringfence.image.target": "base"}, False),
        (["docker.io/localhost/ringfence/base:1"], {"ringfence.image.target": "base"}, False),
        (["localhost/ringfence/base:1"], {}, False),
        (None, None, False),
    ],
    ids=["built by us", "built upon ours", "of a registry", "without our labels", "without a name"],
)
def test_which_images_are_our_own(
    names: list[str] | None, labels: dict[str, str] | None, is_own: bool
) -> None:
    """An image counts as ours if it has our label and a name that no registry can publish."""
    found = {"Id": "sha256:1", "RepoTags": names, "Config": {"Labels": labels}}
    assert parse_image("a:1", found).is_own is is_own


@pytest.mark.parametrize(("uid", "inside"), [(1500, 1500), (87_463, 1000)])
def test_uid_in_the_range_of_a_user_namespace(uid: int, inside: int) -> None:
    """Where the engine maps a range of uids, the uid inside lies in that range."""
    facts = engine_facts(has_user_namespace=True)
    assert with_ids_inside(launch("all", uid=uid), facts).placement.uid == inside
    assert with_ids_inside(launch("all", uid=uid), engine_facts()).placement.uid == uid


@pytest.mark.parametrize("read_only", [True, False])
def test_an_uploaded_workspace_is_a_volume(read_only: bool) -> None:
    """An uploaded workspace is mounted from a volume, and from no directory of the host."""
    placement = Placement(1500, 1500, Path("/w"), Path("/c"), workspace_read_only=read_only, upload="all")
    mounts = asked(placement=placement, volume="v")["HostConfig"]["Mounts"]
    of_workspace = [one for one in mounts if one["Target"] == "/w"]
    assert [(one["Type"], one["Source"], one["ReadOnly"]) for one in of_workspace] == [
        ("volume", "v", read_only)
    ]
    assert "/c" not in {one.get("Source") for one in mounts}
