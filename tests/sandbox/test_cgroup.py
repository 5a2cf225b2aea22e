"""Control groups: found where they can be had, enforced for real, removed without a trace."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.cgroup import (
    Cgroup,
    GroupLimits,
    adopt,
    create,
    launch_environment,
    launch_prefix,
    leftovers,
    plan,
    remove_leftovers,
)
from ringfence.sandbox.docker.fence import end_processes

REAL = plan()
kernel = pytest.mark.skipif(not all(REAL.can.values()), reason=f"limits cannot be had here: {REAL.reason}")


def fake(tmp_path: Path, mounts: dict[str, str], own: str, environment: dict[str, str] | None = None) -> Path:
    """A procfs whose mounts lie in `tmp_path`: mount point to `type options`."""
    lines = [
        f"31 23 0:28 / {tmp_path / at} rw,relatime - {options.split()[0]} cgroup {options.split()[1]}"
        for at, options in mounts.items()
    ]
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text("\n".join(lines) + "\n")
    (proc / "self" / "cgroup").write_text(own)
    return proc


def group(path: Path, *, controllers: str = "", passed_on: str = "", pids: str = "") -> None:
    """A directory that looks like a version 2 group."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(passed_on)
    (path / "cgroup.procs").write_text(pids)
    (path / "cgroup.type").write_text("domain")


class TestPlan:
    def test_without_control_groups(self, tmp_path: Path) -> None:
        """Without a procfs there are no limits, and the reason says what to do."""
        found = plan(tmp_path)
        assert (found.kind, found.places) == ("none", ())
        assert not any(found.can.values())
        assert "mount" in found.reason

    def test_uses_our_own_version_1_groups(self, tmp_path: Path) -> None:
        """In version 1 the new group is made below our own group of each tree."""
        for name in ("memory/mine", "cpu,cpuacct", "pids"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "cgroup.procs").touch()
        proc = fake(
            tmp_path,
            {"memory": "cgroup rw,memory", "cpu,cpuacct": "cgroup rw,cpu,cpuacct", "pids": "cgroup rw,pids"},
            "4:memory:/mine\n3:cpu,cpuacct:/\n2:pids:/\n",
        )
        found = plan(proc)
        assert (found.kind, found.can) == ("v1", {"memory": True, "cpus": True, "pids": True})
        assert {str(p.directory.relative_to(tmp_path)) for p in found.places} == {
            "memory/mine",
            "cpu,cpuacct",
            "pids",
        }

    def test_names_that_others_give_are_read_past(self, tmp_path: Path) -> None:
        """A mount point or a group whose name is no text, or holds a form feed, is in nobody's way."""
        (tmp_path / "pids" / "form\x0cfeed").mkdir(parents=True)
        (tmp_path / "pids" / "form\x0cfeed" / "cgroup.procs").touch()
        proc = fake(tmp_path, {"pids": "cgroup rw,pids"}, "2:pids:/form\x0cfeed\n")
        with (proc / "self" / "mountinfo").open("ab") as mounts:
            mounts.write(b"32 23 0:29 / /home/other/\xff rw,relatime - fuse.sshfs other rw\n")
        with (proc / "self" / "cgroup").open("ab") as memberships:
            memberships.write(b"1:name=systemd:/other-\xff\n")
        assert plan(proc).places[0].directory == tmp_path / "pids" / "form\x0cfeed"

    def test_missing_version_1_tree(self, tmp_path: Path) -> None:
        """A limit whose version 1 tree is not mounted cannot be set."""
        (tmp_path / "pids").mkdir()
        (tmp_path / "pids" / "cgroup.procs").touch()
        found = plan(fake(tmp_path, {"pids": "cgroup rw,pids"}, "2:pids:/\n"))
        assert found.can == {"memory": False, "cpus": False, "pids": True}

    def test_uses_an_ancestor_which_passes_controllers_on(self, tmp_path: Path) -> None:
        """Where our group holds other processes, the nearest ancestor that delegates controllers is used."""
        group(tmp_path / "v2", controllers="cpu memory pids", passed_on="memory pids", pids="3\n")
        group(tmp_path / "v2/slice", controllers="memory pids", passed_on="memory pids")
        group(tmp_path / "v2/slice/scope", controllers="memory pids", pids="1\n2\n")
        found = plan(fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/slice/scope\n"))
        assert found.places[0].directory == tmp_path / "v2/slice"
        assert found.can == {"memory": True, "cpus": False, "pids": True}

    def test_steps_aside_where_all_processes_are_ours(self, tmp_path: Path) -> None:
        """A group that holds only this process can be used after the process has moved out of it."""
        group(tmp_path / "v2", controllers="cpu memory pids", pids="1\n")
        group(tmp_path / "v2/scope", controllers="cpu memory pids", pids=f"{os.getpid()}\n")
        found = plan(fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/scope\n"))
        assert [place.step_aside for place in found.places] == [True]
        assert found.places[0].directory == tmp_path / "v2/scope"

    def test_other_processes_in_our_group(self, tmp_path: Path) -> None:
        """A group with other processes and no usable ancestor gives no limits, and the reason says so."""
        group(tmp_path / "v2", controllers="cpu memory pids", pids=f"1\n{os.getpid()}\n")
        found = plan(fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/\n"), environment={})
        assert found.kind == "none"
        assert "other processes" in found.reason
        assert "systemd-run" in found.reason

    def test_group_outside_the_mount(self, tmp_path: Path) -> None:
        """A group that the mount does not show (in a container's view) is not guessed at."""
        group(tmp_path / "v2", controllers="memory")
        assert plan(fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/../other\n"), environment={}).kind == "none"

    def test_planning_changes_nothing(self, tmp_path: Path) -> None:
        """Planning makes and removes no file."""
        group(tmp_path / "v2", controllers="cpu memory pids")
        before = sorted(tmp_path.rglob("*"))
        proc = fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/\n")
        plan(proc)
        assert [path for path in sorted(tmp_path.rglob("*")) if "proc" not in path.parts] == [
            path for path in before if "proc" not in path.parts
        ]


def test_launch_environment() -> None:
    """Only variables that lead to the user's systemd are passed to `systemd-run`."""
    mine = {"XDG_RUNTIME_DIR": "/run/user/1000", "ANTHROPIC_API_KEY": "secret", "PATH": "/bin"}
    assert launch_environment(mine) == {"XDG_RUNTIME_DIR": "/run/user/1000"}


def test_launch_prefix() -> None:
    """The systemd scope has each limit, that on swap included."""
    words = launch_prefix("abc", GroupLimits(1024, 1.5, 7))
    assert words[:3] == ("systemd-run", "--user", "--scope")
    assert {"MemoryMax=1024", "MemorySwapMax=0", "CPUQuota=150%", "TasksMax=7"} <= set(words)
    assert words[-1] == "--"


def test_systemd_is_planned_only_with_scopes(tmp_path: Path) -> None:
    """Without `scopes`, a caller that cannot launch by `systemd-run`, no limits of systemd are promised."""
    uid = os.getuid()
    group(tmp_path / "v2")
    (tmp_path / "v2/cgroup.procs").write_text("1\n")
    group(tmp_path / f"v2/user.slice/user-{uid}.slice/user@{uid}.service", controllers="memory pids")
    (tmp_path / "run/systemd/private").mkdir(parents=True)
    proc = fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/\n")
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "PATH": os.environ["PATH"]}
    assert plan(proc, environment=environment).kind == "none"
    found = plan(proc, environment=environment, scopes=True)
    if shutil.which("systemd-run") is None:
        pytest.skip("systemd-run is not installed")
    assert (found.kind, found.can) == ("systemd", {"memory": True, "cpus": False, "pids": True})
    assert found.places == ()


@kernel
def test_leaves_nothing_when_a_limit_is_refused() -> None:
    """If the kernel rejects a limit an error is raised, and no half-made group stays."""
    with pytest.raises(SandboxStartFailed, match=r"pids\.max"):
        make("test-refused", 2**30, 1.0, -5)
    assert "test-refused" not in leftovers()


def test_adopt_refuses_other_limits(tmp_path: Path) -> None:
    """A systemd scope with another limit than the requested one is refused."""
    group(tmp_path / "v2/scope")
    (tmp_path / "v2/scope/pids.max").write_text("max\n")
    proc = fake(tmp_path, {"v2": "cgroup2 rw"}, "0::/scope\n")
    (proc / "7").mkdir()
    (proc / "7" / "cgroup").write_text("0::/scope\n")
    with pytest.raises(SandboxStartFailed, match="is 'max' where '5'"):
        adopt("a", 7, GroupLimits(pids=5), proc)
    assert adopt("a", 7, GroupLimits(), proc).directories == (tmp_path / "v2/scope",)


def make(sandbox_id: str, memory_bytes: int | None, cpus: float | None, pids: int | None) -> Cgroup:
    """Create a group on this machine."""
    return create(sandbox_id, GroupLimits(memory_bytes, cpus, pids), REAL.places)


JOIN = "import sys; sys.stdin.read(1);"


class Fenced:
    """A Python process that waits until it was moved into a group."""

    def __init__(self, cgroup: Cgroup, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", JOIN + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        cgroup.add(self.process.pid)

    async def first_line(self) -> bytes:
        """Let the process go on; return the first line of its output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"x")
        self.process.stdin.flush()
        return await anyio.to_thread.run_sync(self.process.stdout.readline)

    async def end(self) -> tuple[int, bytes]:
        """Let the process go on; return its exit code and output."""
        out, _ = await anyio.to_thread.run_sync(lambda: self.process.communicate(b"x", timeout=60))
        return self.process.returncode, out


@pytest.fixture(name="sandbox_id")
async def _sandbox_id() -> AsyncIterator[str]:
    """An id whose group is removed at the end of the test, however that ends."""
    sandbox_id = f"test-{secrets.token_hex(4)}"
    yield sandbox_id
    remove_leftovers(frozenset({sandbox_id}))
    assert sandbox_id not in leftovers()


@kernel
class TestEnforced:
    async def test_memory_bomb_is_killed_and_counted(self, sandbox_id: str) -> None:
        """A process that takes more memory than the limit is killed, and the kill is counted."""
        cgroup = make(sandbox_id, 64 * 1024**2, None, None)
        code, _ = await Fenced(cgroup, "b = bytearray(300 * 1024**2); print('survived')").end()
        assert code == -9
        assert cgroup.usage().oom_kills == 1

    async def test_limit_that_is_no_whole_page(self, sandbox_id: str) -> None:
        """A limit that is no multiple of the page size is rounded down, and passes the check of the read-back value."""
        cgroup = make(sandbox_id, 64 * 1024**2 + 17, None, None)
        assert (await Fenced(cgroup, "print('fine')").end())[1] == b"fine\n"

    async def test_fork_bomb_is_bounded(self, sandbox_id: str) -> None:
        """No more processes than the limit can be started."""
        cgroup = make(sandbox_id, None, None, 20)
        script = """
import os, signal
count = 0
try:
    while True:
        if os.fork() == 0:
            signal.pause()
        count += 1
except OSError as exc:
    print(count, exc.errno, flush=True)
"""
        fenced = Fenced(cgroup, script)
        assert (await fenced.first_line()).split() == [b"19", b"11"]
        cgroup.kill()
        fenced.process.communicate(timeout=10)

    @pytest.mark.slow
    async def test_loops_are_throttled(self, sandbox_id: str) -> None:
        """Two busy processes share the processor time of the limit."""
        cgroup = make(sandbox_id, None, 0.5, None)
        script = """
import os, time
os.fork()
end = time.monotonic() + 2
while time.monotonic() < end: pass
"""
        started = time.monotonic()
        await Fenced(cgroup, script).end()
        used = cgroup.usage().cpu_s
        assert used is not None
        assert used / (time.monotonic() - started) < 0.75

    async def test_counts_what_is_used(self, sandbox_id: str) -> None:
        """Memory, processor time and number of processes inside are reported."""
        cgroup = make(sandbox_id, 256 * 1024**2, 1.0, 50)
        fenced = Fenced(cgroup, "")
        use = cgroup.usage()
        assert (use.pids, use.oom_kills) == (1, 0)
        assert use.memory_bytes is not None
        assert use.cpu_s is not None
        await fenced.end()

    async def test_kill_and_remove(self, sandbox_id: str) -> None:
        """`kill` ends all processes, and `remove` removes the group with groups that were made in it."""
        cgroup = make(sandbox_id, None, None, 50)
        script = "import os, signal; [os.fork() for _ in range(4)]; print('up', flush=True); signal.pause()"
        fenced = Fenced(cgroup, script)
        await fenced.first_line()
        cgroup.kill()
        assert cgroup.members() == frozenset()
        assert cgroup.remove()
        assert not any(directory.exists() for directory in cgroup.directories)
        fenced.process.communicate(timeout=10)

    async def test_a_process_enters_the_group_by_itself(self, sandbox_id: str) -> None:
        """A process that writes to all entrances is in the group in all trees, as if it had been moved."""
        cgroup = make(sandbox_id, 64 * 1024**2, 1.0, 20)
        words = " && ".join(f"echo 0 > {entrance}" for entrance in cgroup.entrances())
        async with await anyio.open_process(["sh", "-c", f"{words} && echo in && exec sleep 60"]) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"in\n"
            found = [
                int(pid)
                for directory in cgroup.directories
                for pid in (directory / "cgroup.procs").read_text().split()
            ]
            cgroup.kill()
        assert found == [process.pid] * len(cgroup.directories)

    async def test_a_second_group_of_an_id_is_refused(self, sandbox_id: str) -> None:
        """A second group with the same id is refused, and the first is not changed."""
        first = make(sandbox_id, None, None, 50)
        with pytest.raises(SandboxStartFailed, match=sandbox_id):
            make(sandbox_id, None, None, 60)
        assert all(directory.exists() for directory in first.directories)

    @pytest.mark.slow
    async def test_groups_are_made_and_removed_concurrently(self) -> None:
        """Groups that are made and removed concurrently leave nothing."""
        ids = [f"test-many-{secrets.token_hex(4)}" for _ in range(8)]

        def come_and_go(sandbox_id: str) -> None:
            for _ in range(50):
                assert make(sandbox_id, None, None, 50).remove()

        async with anyio.create_task_group() as tasks:
            for sandbox_id in ids:
                tasks.start_soon(anyio.to_thread.run_sync, come_and_go, sandbox_id)
        assert not leftovers().keys() & set(ids)

    async def test_clean_up_removes_only_named_groups(self, sandbox_id: str) -> None:
        """A dead sandbox's group is found by its id and removed; others stay."""
        make(sandbox_id, None, None, 50)
        assert sandbox_id in leftovers()
        assert remove_leftovers(frozenset({"somebody-else"})) == []
        assert remove_leftovers(frozenset({sandbox_id})) == [f"control group {sandbox_id}"]
        assert sandbox_id not in leftovers()

    async def test_a_group_whose_name_is_no_text_is_in_nobodys_way(self, sandbox_id: str) -> None:
        """Where a process is in such a group, a container's processes are looked for all the same."""
        cgroup = make(f"{sandbox_id}-\udcff", None, None, 50)
        fenced = Fenced(cgroup, "")
        try:
            assert not await end_processes("0" * 64, within_s=0.2)
        finally:
            await fenced.end()
            assert cgroup.remove()


V2_ROOT = Path("/sys/fs/cgroup/unified")


@pytest.mark.skipif(
    not os.access(V2_ROOT / "cgroup.procs", os.W_OK), reason="no writable version 2 tree beside version 1"
)
async def test_version_2_kill() -> None:
    """`kill` ends all processes of a version 2 group by the kernel's own `cgroup.kill`."""
    directory = V2_ROOT / f"ringfence-sandbox-test-{secrets.token_hex(4)}"
    directory.mkdir()
    cgroup = Cgroup(directory.name, (directory,))
    fenced = Fenced(cgroup, "import signal; signal.pause()")
    assert cgroup.usage().cpu_s is not None
    cgroup.kill()
    assert fenced.process.wait(10) == -9
    fenced.process.communicate()
    assert cgroup.remove()
