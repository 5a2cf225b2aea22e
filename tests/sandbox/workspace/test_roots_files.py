"""Root's own workspace, shown itself: nobody inside is root, and nothing inside becomes more than a file of root's."""

import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused, SandboxStartFailed
from ringfence.removal import remove_tree
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.base import Launch
from ringfence.sandbox.idmap import ON_HOST, mounted_on_host
from ringfence.sandbox.registry import get_backend
from ringfence.sandbox.workspace.open import RESERVED_ID
from ringfence.sandbox.workspace.standalone import open_for_sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of root's")

_CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")
"""cap_net_raw, permitted and effective, as `setcap` writes it (capability.h, revision 2)."""
_MAP_WRITE = """
import mmap, os, struct, sys
path = sys.argv[1]
entries = [(1, 7), (4, 5), (0x20, 5)]
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, right, 0xFFFFFFFF) for tag, right in entries)
os.setxattr(path, "system.posix_acl_access", acl)
with open(path, "r+b") as file:
    mmap.mmap(file.fileno(), 0)[:4] = b"EVIL"
"""


@pytest.fixture
def roots() -> Iterator[Path]:
    """A workspace of root's, closed to all others, with a file of root's alone and one of a user's."""
    outer = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    workspace = outer / "workspace"
    workspace.mkdir(mode=0o700)
    (workspace / "secret").write_text("root's\n")
    (workspace / "secret").chmod(0o600)
    (workspace / "theirs").write_text("a user's\n")
    (workspace / "theirs").chmod(0o600)
    os.chown(workspace / "theirs", 1500, 1500)
    yield workspace
    remove_tree(outer)


def mount(argv: list[str | Path]) -> None:
    """Mount or unmount something."""
    subprocess.run(argv, check=True)


def spec_of(workspace: Path, mode: str | None = "bind", **more: object) -> SandboxSpec:
    """A sandbox on it."""
    fields = {"backend": "bubblewrap", "workspace": workspace, "mode": mode, **more}
    return SandboxSpec.model_validate(fields)


def modes_in(directory: Path) -> list[int]:
    """Of everything in it."""
    return [path.lstat().st_mode for path in directory.iterdir()]


@pytest.fixture(
    params=["bubblewrap", *(pytest.param(name, marks=pytest.mark.docker) for name in ("docker", "podman"))]
)
def shown(request: pytest.FixtureRequest, roots: Path, images: Callable[[str], str | None]) -> SandboxSpec:
    """A sandbox on it, for each backend that can show it."""
    return spec_of(roots, backend=request.param, image=images(request.param))


async def test_roots_files_are_the_sandboxs(shown: SandboxSpec, roots: Path) -> None:
    """Inside they can be read, written and made as one's own; on disk they are root's; a user's stay the user's."""
    script = (
        "id -u; id -g; cat secret; echo more >> secret; mkdir d; echo x > d/new; cat theirs || rm -f theirs/x"
    )
    async with Sandbox.open(shown) as sandbox:
        done = await sandbox.run(["sh", "-c", script])
        owner = await sandbox.run(["stat", "-c", "%u:%g", ".", "secret", "d/new"])
    assert done.stdout == f"{RESERVED_ID}\n{RESERVED_ID}\nroot's\n"
    assert owner.stdout.split() == [f"{RESERVED_ID}:{RESERVED_ID}"] * 3
    assert (roots / "secret").read_text() == "root's\nmore\n"
    for name in ("d", "d/new", "secret"):
        status = (roots / name).stat()
        assert (status.st_uid, status.st_gid) == (0, 0)
    assert (roots / "theirs").read_text() == "a user's\n"


async def test_what_is_mounted_can_hold_no_program_of_roots(shown: SandboxSpec, roots: Path) -> None:
    """Set-id bits have no effect and devices cannot be opened on the mount, whoever put them there."""
    async with Sandbox.open(shown) as sandbox:
        found = await sandbox.run(["cat", "/proc/self/mountinfo"])
    options = {words[4]: words[5].split(",") for words in map(str.split, found.stdout.splitlines())}
    assert {"nosuid", "nodev"} <= set(options[str(roots)])


@pytest.mark.parametrize(
    "argv",
    [
        ["chmod", "u+s", "made"],
        ["chmod", "g+s", "made"],
        ["chown", "0:0", "made"],
        ["mknod", "made.device", "c", "1", "3"],
        ["setcap", "cap_net_raw+ep", "made"],
        ["python3", "-c", f"import os; os.setxattr('made', 'security.capability', {_CAPABILITY!r})"],
        ["python3", "-c", "import os; os.mknod('made.device', 0o020666, 0)"],
        [
            "python3",
            "-c",
            "import ctypes; open('gone', 'w').close(); exit(ctypes.CDLL(None).renameat2(-100, b'gone', -100, b'x', 4))",
        ],
    ],
    ids=["setuid", "setgid", "chown", "device", "setcap", "capability", "whiteout", "rename-whiteout"],
)
async def test_no_powers_are_left_on_disk(shown: SandboxSpec, roots: Path, argv: list[str]) -> None:
    """No file becomes more than a plain file of root's: no set-id bit, no capability, no device, no other owner."""
    async with Sandbox.open(shown) as sandbox:
        await sandbox.run(["cp", "/bin/true", "made"])
        done = await sandbox.run(argv)
    assert not done.ok
    assert "security.capability" not in os.listxattr(roots / "made")
    modes = modes_in(roots)
    assert all(map(stat.S_ISREG, modes))
    assert not any(mode & (stat.S_ISUID | stat.S_ISGID) for mode in modes)


async def test_directories_hand_down_their_group_only(shown: SandboxSpec, roots: Path) -> None:
    """In a set-group-ID directory a new file has its group, and no bit that would lend it."""
    shared = roots / "shared"
    shared.mkdir()
    os.chown(shared, 0, 1600)
    shared.chmod(0o2775)
    async with Sandbox.open(shown) as sandbox:
        await sandbox.run(["sh", "-c", "cp /bin/true shared/made; chmod 755 shared/made"])
        await sandbox.run(["chmod", "2755", "shared/made"])
    status = (shared / "made").stat()
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (1600, 0o755)


@pytest.mark.parametrize("place_of", ["tool", "deep/er/tool"])
@pytest.mark.parametrize("kind", ["setuid", "setgid", "capability"])
async def test_files_with_powers_are_refused(roots: Path, kind: str, place_of: str) -> None:
    """What could be written through a mapping without losing its powers is not shown; clear of them, it is."""
    path = roots / place_of
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"old program")
    path.chmod({"setuid": 0o4555, "setgid": 0o2755}.get(kind, 0o755))
    if kind == "capability":
        os.setxattr(path, "security.capability", _CAPABILITY)
    with pytest.raises(PolicyRefused, match=r"tool.*chmod ug-s, setcap -r.*'clone'") as refused:
        async with Sandbox.open(spec_of(roots)) as sandbox:
            await sandbox.run(["python3", "-c", _MAP_WRITE, place_of])
    assert refused.value.rule == "bind-privileged-files"
    assert path.read_bytes() == b"old program"


async def test_mounts_in_the_workspace_are_refused(roots: Path) -> None:
    """Only the workspace itself is shown, not what root mounted in it; without a word nothing is left out, either."""
    inner = roots / "a b"
    inner.mkdir()
    mount(["mount", "-t", "tmpfs", "none", inner])
    try:
        with pytest.raises(PolicyRefused, match="a b'; unmount it") as refused:
            async with Sandbox.open(spec_of(roots)):
                pass
    finally:
        mount(["umount", inner])
    assert refused.value.rule == "bind-inner-mount"


async def test_file_systems_that_cannot(roots: Path) -> None:
    """Where the file system has no idmapped mounts, the sandbox is refused with what would work."""
    lower = roots.parent
    for name in ("lower", "upper", "scratch", "over"):
        (lower / name).mkdir()
    options = f"lowerdir={lower}/lower,upperdir={lower}/upper,workdir={lower}/scratch"
    mount(["mount", "-t", "overlay", "none", "-o", options, lower / "over"])
    (lower / "over/project").mkdir()
    try:
        with pytest.raises(SandboxStartFailed, match=r"no idmapped mount: Invalid argument.*mode 'clone'"):
            async with Sandbox.open(spec_of(lower / "over/project")):
                pass
    finally:
        mount(["umount", lower / "over"])


async def test_protected_files_stay_readable(shown: SandboxSpec, roots: Path) -> None:
    """What is mounted read-only upon itself is root's, closed to others, and can be read inside all the same."""
    (roots / ".envrc").write_text("trusted\n")
    (roots / ".envrc").chmod(0o600)
    async with Sandbox.open(shown) as sandbox:
        done = await sandbox.run(["sh", "-c", "cat .envrc; echo mine >> .envrc"])
    assert (done.stdout, done.ok) == ("trusted\n", False)
    assert (roots / ".envrc").read_text() == "trusted\n"


async def test_devices_are_covered(shown: SandboxSpec, roots: Path) -> None:
    """A device node of root's in the workspace cannot be opened, nor opened up for others on the host."""
    (roots / "rootfs").mkdir()
    os.mknod(roots / "rootfs/zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    script = "head -c 1 rootfs/zero | wc -c; chmod 666 rootfs/zero; rm -f rootfs/zero; mv rootfs other; mv rootfs/zero x"
    async with Sandbox.open(shown) as sandbox:
        done = await sandbox.run(["sh", "-c", script])
    assert done.stdout.strip() == "0"
    assert (roots / "rootfs/zero").stat().st_mode == stat.S_IFCHR | 0o600


@pytest.mark.docker
async def test_a_mount_for_an_engine_goes_with_its_sandbox(
    roots: Path, state: Path, images: Callable[[str], str | None]
) -> None:
    """On the host nothing stays mounted; what a killed process left goes without a file of the workspace."""
    spec = spec_of(roots, backend="docker", image=images("docker"))
    async with Sandbox.open(spec) as sandbox:
        assert (await sandbox.run(["cat", "secret"])).stdout == "root's\n"
        assert not (ON_HOST / sandbox.id).exists()
    async with (
        open_for_sandbox(spec, "left", state) as opened,
        mounted_on_host(Launch("left", spec, opened.placement, ())) as there,
    ):
        source = there.placement.workspace_source
        assert source is not None
        assert (source / "secret").stat().st_uid == RESERVED_ID
        assert (ON_HOST / "left").stat().st_mode & 0o077 == 0
        await get_backend("docker").remove_leftovers(frozenset({"left"}))
        assert not (ON_HOST / "left").exists()
    assert (roots / "secret").read_text() == "root's\n"
