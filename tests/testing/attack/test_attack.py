"""The escape suite: every promise holds in the bubblewrap fence, and checks fail where there is no fence."""

import ast
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType

import pytest

from ringfence.config.units import ByteCount
from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.removal import remove_tree
from ringfence.sandbox import ExecResult, Sandbox, SandboxSpec
from ringfence.sandbox.cgroup import plan
from ringfence.testing.attack import (
    ATTACKS,
    commits,
    exhaustion,
    host_files,
    kernel_files,
    lifetime,
    network,
    open_beside,
    privileges,
    processes,
    run_attacks,
    system_calls,
    workspace_files,
)
from ringfence.testing.attack.attack import _PRELUDE, verdict_of

STATUS = dict(
    line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line
)
UNFILTERED = STATUS["Seccomp"] == "0" and STATUS["NoNewPrivs"] == "0"
NEEDS_KERNEL_LIMIT = {"memory-files", "memory-shared", "memory-segments"}

Open = Callable[[], AbstractAsyncContextManager[Sandbox]]


@pytest.fixture(name="workspace")
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch workspace of an ordinary user, who can walk to it, whoever runs the tests; and a home of its own."""
    scratch = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    scratch.chmod(0o711)
    workspace = scratch / "workspace"
    workspace.mkdir()
    if os.getuid() == 0:
        os.chown(workspace, 12345, 12345)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    yield workspace
    remove_tree(scratch)


@pytest.fixture(name="fenced")
async def _fenced(workspace: Path) -> Open:
    """Opens bubblewrap sandboxes with small limits."""

    def open_sandbox() -> AbstractAsyncContextManager[Sandbox]:
        return open_beside(
            SandboxSpec(
                backend="bubblewrap",
                workspace=workspace,
                memory=ByteCount(256 * 1024**2),
                tmp=ByteCount(64 * 1024**2),
                pids=100,
                soft_limits=True,
            )
        )

    try:
        async with open_sandbox():
            pass
    except SandboxStartFailed as exc:
        pytest.skip(f"bubblewrap cannot be used here: {exc}")
    return open_sandbox


@pytest.mark.slow
@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS])
async def test_fence_holds(fenced: Open, workspace: Path, name: str) -> None:
    """The bubblewrap fence keeps the promise that the attack tries to break."""
    if name in NEEDS_KERNEL_LIMIT and not plan().can["memory"]:
        pytest.skip("memory is only watched here, and the watch does not see memory that no process holds")
    (result,) = await run_attacks(fenced, workspace, [name])
    assert result.held, result.detail


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root has files of root's")
@pytest.mark.parametrize("group", dict.fromkeys(attack.group for attack in ATTACKS))
async def test_fence_holds_on_roots_own_files(workspace: Path, group: str) -> None:
    """Each promise is kept, too, where root's own workspace is shown itself."""
    os.chown(workspace, 0, 0)
    limits = {"memory": ByteCount(256 * 1024**2), "tmp": ByteCount(64 * 1024**2)}
    spec = SandboxSpec(
        backend="bubblewrap", workspace=workspace, mode="bind", pids=100, soft_limits=True, **limits
    )
    names = [attack.name for attack in ATTACKS if attack.group == group]
    if not plan().can["memory"]:
        names = [name for name in names if name not in NEEDS_KERNEL_LIMIT]
    results = await run_attacks(lambda: open_beside(spec), workspace, names)
    assert {result.name: result.detail for result in results if not result.held} == {}


UNFENCED = [
    *("host-processes", "host-loopback", "abstract-sockets", "socket-files", "netlink", "beside-workspace"),
    *("home", "state-directory", "host-environment", "capabilities", "setuid-programs", "filter"),
    "set-id-files",
    *("mount", "umount", "setns", "clock", "personality"),
]
"""What must not hold on the bare host, for root and for an ordinary user."""

UNFENCED_AS_ROOT = [
    *("root-inside", "root-outside", "shadow", "chroot", "proc-sys", "core-pattern", "proc-guest", "devices"),
    *("raw-sockets", "packet-sockets", "links-before", "links-after", "links-during", "git-directory"),
    *(
        "trusted-files",
        "administration",
        "file-handles",
        "device-nodes",
        "file-capabilities",
        "other-users",
        "kernel-memory",
    ),
]
"""What root can do besides."""


def host(workspace: Path) -> Open:
    """Opens the bare host."""
    return lambda: open_beside(SandboxSpec(backend="host", workspace=workspace))


@pytest.mark.slow
@pytest.mark.skipif(not UNFILTERED, reason="the tests themselves run behind a filter")
@pytest.mark.parametrize("name", UNFENCED)
async def test_check_fails_without_fence(workspace: Path, name: str) -> None:
    """On the bare host the promise is not held: the check can fail."""
    (result,) = await run_attacks(host(workspace), workspace, [name])
    assert not result.held, result.detail


@pytest.mark.slow
@pytest.mark.skipif(not UNFILTERED or os.getuid() != 0, reason="needs root outside of any filter")
@pytest.mark.parametrize("name", UNFENCED_AS_ROOT)
async def test_check_fails_without_fence_as_root(workspace: Path, name: str) -> None:
    """On the bare host, as root, the promise is not held: the check can fail."""
    (result,) = await run_attacks(host(workspace), workspace, [name])
    assert not result.held, result.detail


@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS if not attack.is_harmless])
async def test_harmful_ones_are_not_tried_without_fence(workspace: Path, name: str) -> None:
    """What would harm the machine is not tried without a fence, and does not count as held."""
    (result,) = await run_attacks(host(workspace), workspace, [name])
    assert (result.held, result.detail.partition(":")[0]) == (False, "not tried")


async def test_unknown_attack(workspace: Path) -> None:
    """A name that is no attack's is refused before anything is opened."""
    with pytest.raises(UsageError, match="'nonsense'"):
        await run_attacks(host(workspace), workspace, ["mount", "nonsense"])


async def test_leaves_no_directory_beside_the_workspace(fenced: Open, workspace: Path) -> None:
    """What was planted beside the workspace is gone afterwards."""
    await run_attacks(fenced, workspace, ["beside-workspace"])
    assert list(workspace.parent.iterdir()) == [workspace]


def outcome(stdout: str, ended_by: str = "exit") -> ExecResult:
    """A probe's result."""
    return ExecResult(("p",), stdout.encode(), b"trouble", len(stdout), 7, 1, None, 0.1, ended_by)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stdout",
    ["", "{}", "nonsense", '{"held": true}', "[1]", '"held"'],
    ids=["none", "empty", "text", "half", "list", "word"],
)
def test_no_verdict_is_not_held(stdout: str) -> None:
    """A probe that does not say how it went has not shown anything."""
    verdict = verdict_of(outcome(stdout))
    assert not verdict.held
    assert "trouble" in verdict.detail


def test_last_verdict_counts() -> None:
    """Output before the verdict does not matter."""
    assert verdict_of(outcome('noise\n{"held": true, "detail": "x"}\n')).held


def test_names_are_unique_and_promises_are_sentences() -> None:
    """Each attack can be named, and says what it promises."""
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert all(attack.promise[0].isupper() and attack.promise.endswith(".") for attack in ATTACKS)


MODULES = (
    system_calls,
    processes,
    privileges,
    kernel_files,
    network,
    host_files,
    workspace_files,
    commits,
    lifetime,
    exhaustion,
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_probes_are_python_3_9(module: ModuleType) -> None:
    """Every probe parses as the oldest Python a sandbox may hold."""
    probes = [
        text
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str) and "end(" in text
    ]
    assert probes
    for body in probes:
        ast.parse(_PRELUDE % "{}" + body.replace("    FILL", "    pass"), feature_version=(3, 9))
