"""A warm sandbox is as good as a cold one, is used once, and is never a reason to fail."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.sandbox.pool.conftest import Runs, cold_id, git, give, is_cold, is_gone
from tests.sandbox.supervisor.conftest import children_of, until

from ringfence.errors import SandboxDied
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.supervisor.directory import list_directories

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize("mode", ["bind", "clone", "read_only"])
async def test_a_warm_one_shows_what_a_cold_one_shows(runs: Runs, mode: str):
    """A warm sandbox shows files, git and protected files as they are when a run takes it."""
    runs.changes["mode"] = mode
    (warm,) = await runs.warmed()
    (runs.workspace / "a.txt").write_text("two\n")
    git(runs.workspace, "commit", "-qam", "second")
    look = "cat a.txt; git log --format=%s; git status --short; ls -A; echo x > .envrc"
    async with runs.opened() as sandbox:
        seen = await sandbox.run(["sh", "-c", look])
    assert sandbox.id == warm.sandbox_id
    assert seen.stdout.split() == ["two", "second", "first", ".envrc", ".git", ".github", "a.txt"]
    assert "Read-only" in seen.stderr


async def test_work_in_a_clone_lands_in_the_runs_own_directory(runs: Runs):
    """What a warm sandbox writes in a clone is in the run's directory, not in the pool's."""
    runs.changes["mode"] = "clone"
    await runs.warmed()
    spec, placement, run_dir = await runs.prepared()
    async with runs.pool.opened(spec, placement, run_dir, sandbox_id=cold_id()) as sandbox:
        assert not is_cold(sandbox)
        await sandbox.run(["sh", "-c", "echo new > new; git add new; git commit -qm inside"])
    assert (run_dir / "work" / "new").read_text() == "new\n"
    assert (run_dir / "git" / "HEAD").is_file()
    assert not (runs.workspace / "new").exists()


async def test_runs_at_once_never_share_one(runs: Runs):
    """Runs at the same time take different warm sandboxes; a run that finds none starts its own."""
    runs.changes["mode"] = "read_only"
    await runs.warmed()
    ids: list[str] = []

    async def use() -> None:
        async with runs.opened() as sandbox:
            ids.append(sandbox.id)
            assert (await sandbox.run(["true"])).ok

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(use)
    assert len(set(ids)) == 3
    assert any(name.startswith("cold") for name in ids)


async def test_a_used_sandbox_is_dead_when_its_run_leaves_it(runs: Runs):
    """When a run leaves a warm sandbox, its processes and its supervisor have ended."""
    await runs.warmed()
    async with runs.opened() as sandbox, sandbox.spawn(["sleep", "1000"]):
        (holder,) = [
            place
            for place in list_directories(Path(os.environ["XDG_STATE_HOME"]) / "ringfence" / "pool")
            if (place.path / "taken").exists()
        ]
    assert not holder.is_alive()
    assert not holder.path.exists()


async def test_its_time_to_live_begins_at_hand_over(runs: Runs):
    """The time to live of a warm sandbox counts from when a run takes it."""
    runs.changes["ttl_s"] = 2.0
    (warm,) = await runs.warmed()
    await until(lambda: time.monotonic() - warm.started_s > 2.5)

    async def use() -> None:
        async with runs.opened() as sandbox:
            assert sandbox.id == warm.sandbox_id
            await sandbox.run(["sleep", "60"])

    with pytest.raises(SandboxDied, match="time to live"):
        await use()


# --- what makes one unfit


@pytest.mark.parametrize("change", ["appeared", "replaced", "gone"])
async def test_another_layout_is_not_handed_out(runs: Runs, change: str):
    """If a protected file appeared, was replaced or is gone, the warm sandbox is not used, and is ended."""
    (warm,) = await runs.warmed()
    if change == "appeared":
        (runs.workspace / ".mcp.json").write_text("{}")
    elif change == "replaced":
        (runs.workspace / "other").write_text("export A=2\n")
        (runs.workspace / "other").rename(runs.workspace / ".envrc")
    else:
        (runs.workspace / ".envrc").unlink()
    give(runs.workspace)
    async with runs.opened() as sandbox:
        assert is_cold(sandbox)
        await runs.ready()
        await until(lambda: warm.sandbox_id not in [one.sandbox_id for one in runs._ready() or []])


async def test_one_whose_guest_does_not_answer_is_not_handed_out(runs: Runs):
    """A warm sandbox whose guest does not answer is not used, and is ended."""
    (warm,) = await runs.warmed()
    for bwrap in children_of(warm.pid):
        for pid in (bwrap, *children_of(bwrap)):
            os.kill(pid, signal.SIGSTOP)
    async with runs.opened() as sandbox:
        assert is_cold(sandbox)
        assert (await sandbox.run(["true"])).ok
    assert runs.pool.counts().stale == 1
    await until(lambda: is_gone(warm.pid))


async def test_one_whose_guest_died_goes_by_itself(runs: Runs):
    """A warm sandbox whose guest died ends, and leaves no process and no directory."""
    (warm,) = await runs.warmed()
    for pid in children_of(warm.pid):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not runs.pool.waiting())
    await until(lambda: is_gone(warm.pid))
    assert runs.pool.waiting() == []


async def test_one_whose_supervisor_was_killed_is_passed_over_and_swept(runs: Runs):
    """If the supervisor of a warm sandbox was killed, the next run starts its own sandbox and the pool is refilled."""
    (warm,) = await runs.warmed()
    os.kill(warm.pid, signal.SIGKILL)
    await until(lambda: not runs.pool.waiting())
    async with runs.opened() as sandbox:
        assert is_cold(sandbox)
    assert [one.sandbox_id for one in await runs.ready()] != [warm.sandbox_id]


async def test_one_that_nobody_wants_lapses(runs: Runs):
    """A warm sandbox that is not used within its time ends, and its directory is removed."""
    runs.max_age_s = 1.0
    async with runs.opened():
        pass
    await until(lambda: list_directories(runs.pool._folder) == [])


async def test_what_cannot_be_started_ahead_fails_no_run(runs: Runs, monkeypatch: pytest.MonkeyPatch):
    """If the pool cannot be filled, the run starts its own sandbox, and the failure is counted with its reason."""
    folder = runs.pool._folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    (folder / ".lock").mkdir()
    async with runs.opened() as sandbox:
        assert (await sandbox.run(["true"])).ok
    assert runs.pool.counts().failed == 1
    assert ".lock" in runs.pool.counts().last_failure
    (folder / ".lock").rmdir()


# --- who dies


async def test_a_run_that_is_killed_takes_its_sandbox_along_and_no_other(runs: Runs):
    """When a run is killed its warm sandbox ends, and the one that waits for the next run does not."""
    (warm,) = await runs.warmed()
    words = ["exec", "-C", runs.workspace, "--", "sh", "-c", "echo > started; exec sleep 1000"]
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "ringfence" / "ringfence.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("pool: {size: 1}\nsandbox: {backend: bubblewrap}\n")
    run = _start(*map(str, words))
    await until((runs.workspace / "started").exists)
    (following,) = await runs.ready()
    run.kill()
    run.communicate()
    await until(lambda: is_gone(warm.pid))
    assert [one.sandbox_id for one in await runs.ready()] == [following.sandbox_id]


async def test_a_filler_that_is_killed_leaves_a_pool_that_serves(runs: Runs):
    """If a process is killed while it fills the pool, the next run has a sandbox and the pool is complete again."""
    code = (
        "import anyio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.sandbox.pool.conftest import Runs\n"
        "async def main():\n"
        "    runs = Runs(Path(sys.argv[1]), size=3)\n"
        "    spec, placement, run_dir = await runs.prepared()\n"
        "    async with anyio.create_task_group() as tasks:\n"
        "        tasks.start_soon(runs.pool.refill, spec, placement, run_dir)\n"
        "        while not runs.pool.waiting():\n"
        "            await anyio.sleep(0.001)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "anyio.run(main)\n"
    )
    root = Path(__file__).parents[3]
    assert _end_of([sys.executable, "-c", code, str(runs.workspace)], root) == -signal.SIGKILL
    async with runs.opened() as sandbox:
        assert (await sandbox.run(["true"])).ok
    await until(lambda: all(state for _, state in runs.pool.waiting()))
    assert 1 <= len(runs.pool.waiting()) <= 3


async def test_two_pools_never_touch_each_other(runs: Runs, tmp_path: Path):
    """Draining one pool leaves the sandboxes of another."""
    (warm,) = await runs.warmed()
    other = Pool(tmp_path / "pool", PoolSize(1, 60.0))
    spec, placement, run_dir = await runs.prepared()
    assert await other.refill(spec, placement, run_dir) == 1
    await until(lambda: all(state for _, state in other.waiting()))
    assert await other.drain() == 1
    assert [one.sandbox_id for one in await runs.ready()] == [warm.sandbox_id]


def _end_of(command: list[str], folder: Path) -> int:
    return subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode


def _start(*words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", "from ringfence.cli import main; main()", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
