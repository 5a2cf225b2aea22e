"""One test for each row of the policy."""

import os
import socket
import sys
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox import Facts, Mount, Placement, SandboxSpec
from ringfence.sandbox.policy import Surroundings, check_spec, effective_policy


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    """A home and a state directory."""
    home = tmp_path.resolve() / "home"
    (home / ".local/state/ringfence/runs").mkdir(parents=True)
    for name in (".ssh", ".aws", ".config/gh", "work"):
        (home / name).mkdir(parents=True)
    return Surroundings(home, home / ".local/state/ringfence")


def mounting(source: object, target: str = "/data") -> SandboxSpec:
    """A spec with one mount."""
    return SandboxSpec(mounts=(Mount(source=Path(str(source)), target=target),))


def refused(spec: SandboxSpec, around: Surroundings) -> str | None:
    """The rule that refuses it, if one does."""
    try:
        check_spec(spec, around)
    except PolicyRefused as exc:
        return exc.rule if "is not allowed: " in str(exc) else f"in other words: {exc}"
    return None


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("/", "mount-root"),
        ("/etc", "mount-system"),
        ("/etc/ssl", "mount-system"),
        ("/proc", "mount-system"),
        ("/sys/fs", "mount-system"),
        ("/dev", "mount-system"),
        ("/run", "mount-system"),
        ("/usr/../etc", "mount-system"),
        ("~", "mount-home"),
        ("~/..", "mount-home"),
        ("~/.ssh", "mount-credentials"),
        ("~/.aws", "mount-credentials"),
        ("~/.config/gh", "mount-credentials"),
        ("~/.git-credentials", "mount-credentials"),
        ("~/.local/share/keyrings", "mount-credentials"),
        ("~/.local/state/ringfence", "mount-state"),
        ("~/.local/state/ringfence/runs", "mount-state"),
        ("~/.local", "mount-state"),
    ],
)
def test_sources(source: str, rule: str, around: Surroundings) -> None:
    """What holds the machine, the home, keys or records is not shown."""
    assert refused(mounting(source.replace("~", str(around.home))), around) == rule


POD = {"image": "a:1", "backend": "kubernetes"}
OVER = "mount-over-workspace"
DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"image": "debian"}, "image-tag"),
        ({"image": "debian:latest"}, "image-tag"),
        ({"image": "Bad Name"}, "image-name"),
        ({"image": "debian@sha256:00"}, "image-name"),
        ({"image": "debian:12"}, None),
        ({"image": f"debian@{DIGEST}"}, None),
        ({"image": "debian:12", "digest_only": True}, "image-digest"),
        ({"image": f"debian@{DIGEST}", "digest_only": True}, None),
        ({"image": "debian:12", "registries": ("ghcr.io",)}, "image-registry"),
        ({"image": "ghcr.io/a/b:1", "registries": ("ghcr.io",)}, None),
        ({"image": "ghcr.io.evil.example/a/b:1", "registries": ("ghcr.io",)}, "image-registry"),
        ({"image": "localhost/ringfence/base:1", "registries": ()}, None),
        ({"image": "a:1", "network": "bridge"}, "network"),
        ({"image": "a:1", "network": "lab", "unsafe": ("network",)}, None),
        ({"image": "a:1", "network": "host", "unsafe": ("network",)}, "network"),
        ({"image": "a:1", "labels": {"ringfence.instance": "x"}}, "labels"),
        ({"image": "a:1", "labels": {"team": "x"}}, None),
        ({"image": "a:1", "backend": "bubblewrap"}, "containers-only"),
        ({"image": "a:1", "backend": "host"}, "containers-only"),
        ({"runtime": "runsc"}, "containers-only"),
        ({"engine": "unix:///x", "backend": "bubblewrap"}, "containers-only"),
        ({"tmp_exec": True}, "containers-only"),
        ({"network": "lab", "unsafe": ("network",)}, "containers-only"),
        ({"image": "a:1", "kubernetes": {"namespace": "b"}}, "pods-only"),
        ({"image": "a:1", "backend": "docker", "kubernetes": {"reserve": True}}, "pods-only"),
        ({**POD, "kubernetes": {"namespace": "b", "claims": [{"name": "c", "target": "/cache"}]}}, None),
        ({**POD, "kubernetes": {"claims": [{"name": "c", "target": "/usr/lib"}]}}, "mount-target"),
        ({**POD, "kubernetes": {"claims": [{"name": "c", "target": "/"}]}}, "mount-target"),
        (
            {**POD, "workspace": "/w/x", "kubernetes": {"claims": [{"name": "c", "target": "/w"}]}},
            "mount-over-workspace",
        ),
        ({**POD, "network": "unenforced"}, "network"),
        ({**POD, "network": "unenforced", "unsafe": ("network",)}, None),
        ({**POD, "network": "bridge", "unsafe": ("network",)}, "pods-only"),
    ],
)
def test_containers(fields: dict[str, object], rule: str | None, around: Surroundings) -> None:
    """Images are pinned and of an allowed registry; a network is a loosening; what has no effect is refused."""
    assert refused(SandboxSpec.model_validate(fields), around) == rule


def test_the_names_that_can_be_taken_are_told(around: Surroundings) -> None:
    """Whoever takes the name of a target for that of an image is told where the whole names are."""
    with pytest.raises(PolicyRefused, match="`ringfence image ls` lists those built"):
        check_spec(SandboxSpec(image="polyglot"), around)


@pytest.mark.parametrize("target", ["/etc", "~", "~/.ssh", "~/.local/state/ringfence"])
def test_sources_by_a_link(target: str, around: Surroundings, tmp_path: Path) -> None:
    """A link to what is refused is refused."""
    link = tmp_path / "innocent"
    link.symlink_to(target.replace("~", str(around.home)))
    assert (refused(mounting(link), around) or "").startswith("mount-")


def test_sources_below_a_link(around: Surroundings, tmp_path: Path) -> None:
    """A path through a link to what is refused is refused."""
    (tmp_path / "up").symlink_to(around.home)
    assert refused(mounting(tmp_path / "up/.ssh"), around) == "mount-credentials"


@pytest.mark.parametrize(
    ("kind", "target", "rule"),
    [
        (3, "/ringfence/codex/codex", None),
        (2, "/ringfence/codex/codex", None),
        (4, "/ringfence/codex/codex", "mount-credentials"),
        (3, "/elsewhere", "mount-credentials"),
        (None, "/ringfence/codex/codex", "mount-credentials"),
    ],
    ids=["a program", "an old program", "a core dump", "elsewhere", "no program"],
)
def test_a_native_program_beside_credentials(
    around: Surroundings, kind: int | None, target: str, rule: str | None
) -> None:
    """Where an installer puts a client among its keys, the program alone may be shown, at its own place."""
    source = around.home / ".codex/bin/codex"
    source.parent.mkdir(parents=True)
    head = b"\x7fELF".ljust(16, b"\0") + (kind or 0).to_bytes(2, sys.byteorder)
    source.write_bytes(head if kind else b"key = sk-1")
    assert refused(mounting(source, target), around) == rule


def test_a_directory_of_programs_beside_credentials(around: Surroundings) -> None:
    """A directory is no program: anything may come to be in it."""
    (around.home / ".codex/bin").mkdir(parents=True)
    assert refused(mounting(around.home / ".codex/bin", "/ringfence/codex"), around) == "mount-credentials"


def test_socket(around: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket is refused, that of an engine by its name too, there or not."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("any")
        assert refused(mounting(tmp_path / "any"), around) == "mount-socket"
    assert refused(mounting("/opt/docker.sock"), around) == "mount-socket"
    assert refused(mounting("/srv/podman/podman.sock"), around) == "mount-socket"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_device(around: Surroundings, tmp_path: Path) -> None:
    """A device is refused wherever it is."""
    try:
        os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    assert refused(mounting(tmp_path / "null"), around) == "mount-device"


@pytest.mark.parametrize(
    "target", ["data", "/", "/usr/lib/x", "/etc", "/proc/x", "/a/../etc", "/tmp", "//etc"]
)
def test_targets(target: str, around: Surroundings) -> None:
    """A mount goes on an absolute path of its own, never over the sandbox's system."""
    assert refused(mounting("/srv", target), around) == "mount-target"


@pytest.mark.parametrize("target", ["/code/project", "/code", "/code/x/../project", "/code/project/"])
def test_over_workspace(target: str, around: Surroundings) -> None:
    """A mount does not hide the workspace."""
    spec = SandboxSpec(workspace=Path("/code/project"), mounts=(Mount(source=Path("/srv"), target=target),))
    assert refused(spec, around) == "mount-over-workspace"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LD_PRELOAD", "x"),
        ("LD_AUDIT", "x"),
        ("BASH_ENV", "x"),
        ("PYTHONSTARTUP", "x"),
        ("ENV", "x"),
    ],
)
def test_environment(name: str, value: str, around: Surroundings) -> None:
    """Variables that change what programs load are refused."""
    assert refused(SandboxSpec(env={name: value}), around) == "environment"


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A", "\0"), ("A\0", "x")])
def test_impossible_variables(name: str, value: str, around: Surroundings) -> None:
    """A variable that no process can have is refused for that."""
    assert refused(SandboxSpec(env={name: value}), around) == "variable-name"


def test_what_is_allowed(around: Surroundings, tmp_path: Path) -> None:
    """A directory of the user's own on a path of its own, and common variables, are no offence."""
    mounts = (
        Mount(source=around.home / "work", target="/data"),
        Mount(source=tmp_path, target="/home/agent/cache", read_only=False),
    )
    spec = SandboxSpec(
        workspace=Path("/code"), mounts=mounts[:1], env={"CI": "1", "LANG": "C", "ENVIRONMENT": "x"}
    )
    assert refused(spec, around) is None


def test_effective_policy_is_plain_data() -> None:
    """What holds can be printed, and names no value of a variable."""
    spec = SandboxSpec(env={"TOKEN": "secret"})
    said = effective_policy(
        spec, Placement(1, 1, None, None), Facts(backend="x", enforced={"memory": "soft"})
    )
    assert said["enforced"] == {"memory": "soft"}
    assert "TOKEN" in said["environment"]
    assert "secret" not in repr(said)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"egress": {"allow": ["169.254.169.254"]}}, "egress-target"),
        ({"egress": {"allow": ["metadata.google.internal"]}}, "egress-target"),
        ({"egress": {"allow": ["a.example:2375"]}}, "egress-target"),
        ({"egress": {"allow": ["packages"]}, "forward": ("a:3128",)}, "forward-port"),
        ({"egress": {"allow": ["packages"]}, "backend": "host"}, "forward-unfenced"),
    ],
    ids=["metadata", "metadata by name", "engine", "the proxy's port", "no fence"],
)
def test_egress(fields: dict[str, object], rule: str, around: Surroundings) -> None:
    """What may never be reached is refused in a spec, and so is a proxy that cannot listen or changes nothing."""
    assert refused(SandboxSpec.model_validate(fields), around) == rule


def test_egress_is_in_the_policy() -> None:
    """The effective policy says what may be reached, and what is denied."""
    spec = SandboxSpec.model_validate(
        {"egress": {"allow": ["packages", {"host": "a.example", "max_bytes": 10}], "deny": ["pypi.org"]}}
    )
    policy = effective_policy(spec, Placement(1, 1, None, None), Facts())
    assert policy["egress"] == ["allow packages", "allow a.example (at most 10 bytes)", "deny pypi.org"]
