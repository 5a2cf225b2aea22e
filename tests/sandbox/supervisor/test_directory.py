"""Where supervised sandboxes are found: names, locks, what is left of the dead."""

import os
import threading
from pathlib import Path

import pytest

from ringfence.errors import RecordError, UsageError
from ringfence.job.standing_sandbox import remove_dead
from ringfence.sandbox import Facts, SandboxSpec
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.supervisor.directory import (
    SandboxDirectory,
    SupervisorState,
    list_directories,
    remove_remnants,
    standing_directory,
)


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", ".hidden", "-x", "a/b", "é", "x" * 64, "a\n"])
def test_what_is_no_name_is_refused(name: str):
    """Names that could leave the directory, or are hard to type, are refused."""
    with pytest.raises(UsageError, match="cannot be the name"):
        standing_directory(name)


def test_a_lock_is_gone_with_its_supervisor(tmp_path: Path):
    """A directory counts as alive while a process holds its lock."""
    directory = SandboxDirectory(tmp_path / "one")
    lock = directory.claim()
    before = directory.is_alive()
    os.close(lock)
    assert (before, directory.is_alive()) == (True, False)


def test_a_dead_sandboxs_directory_is_reused_empty(tmp_path: Path):
    """A dead sandbox's directory is claimed without anything that was in it."""
    directory = SandboxDirectory(tmp_path / "one")
    os.close(directory.claim())
    (directory.path / "old").touch()
    lock = directory.claim()
    assert not (directory.path / "old").exists()
    os.close(lock)


def test_one_of_many_claims_succeeds(tmp_path: Path):
    """Of processes that claim a directory at the same time, exactly one succeeds."""
    directory = SandboxDirectory(tmp_path / "one")
    locks: list[int] = []

    def try_it() -> None:
        try:
            locks.append(directory.claim())
        except UsageError:
            return

    threads = [threading.Thread(target=try_it) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(locks) == 1
    os.close(locks[0])


def test_a_name_that_was_claimed_since_is_not_removed(tmp_path: Path):
    """Its supervisor was dead when it was looked at, and another has the name now."""
    directory = SandboxDirectory(tmp_path / "one")
    os.close(directory.claim())
    lock = directory.claim()
    directory.remove_if_dead()
    assert directory.is_alive()
    os.close(lock)
    directory.remove_if_dead()
    assert not directory.path.exists()


def test_removing_twice_is_harmless(tmp_path: Path):
    """Removing a directory that another process has removed is no error."""
    directory = SandboxDirectory(tmp_path / "one")
    os.close(directory.claim())
    directory.remove()
    directory.remove()
    assert list_directories(tmp_path) == []


def test_unfinished_removals_are_completed(tmp_path: Path):
    """Directories of old, unfinished removals are removed; recent ones are another process's work."""
    for name, age_s in ((".gone-old", 10_000), (".gone-new", 0)):
        path = tmp_path / name
        path.mkdir()
        moment = path.stat().st_mtime - age_s
        os.utime(path, (moment, moment))
    remove_remnants(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".gone-new"]


@pytest.fixture
def state() -> SupervisorState:
    """A state with everything in it."""
    odd = Path(os.fsdecode(b"/w/\xff"))
    return SupervisorState(
        sandbox_id="abc",
        pid=1,
        spec=SandboxSpec(workspace=odd, memory="1g", env={"A": "1"}),
        facts=Facts(
            backend="bubblewrap", enforced={"memory": "kernel"}, notes=("one",), watched_paths=("/w",)
        ),
        chosen_because="named",
        created_at="2026-01-01T00:00:00+00:00",
        started_s=1.5,
        directory_inside=str(odd),
        source=str(odd),
        policy={"network": "none"},
    )


def test_a_state_is_read_as_it_was_written(tmp_path: Path, state: SupervisorState):
    """A state comes back as it was written, with names that are no UTF-8 and the limits that were set explicitly."""
    directory = SandboxDirectory(tmp_path)
    directory.write_state(state)
    again = directory.read_state()
    assert again == state
    assert again is not None
    assert again.spec.explicit_limits() == frozenset({"memory"})


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', "\0"])
def test_a_damaged_state_is_an_error(tmp_path: Path, text: str):
    """A damaged state file is an error, and never another state."""
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(RecordError, match="damaged"):
        SandboxDirectory(tmp_path).read_state()


async def test_what_version_0_1_left_is_cleared_away(tmp_path: Path):
    """Its state has another format: the sandbox is reported as gone, and its name and its place in a pool are free."""
    pool = SandboxDirectory(tmp_path / "pool" / "one")
    for left in (standing_directory("one"), pool):
        os.close(left.claim())
        (left.path / "state.json").write_text('{"format": 2, "kind": "standing", "sandbox_id": "abc"}')
    (gone,) = remove_dead()
    assert (gone.name, gone.run_id) == ("one", None)
    assert "of another version" in gone.why
    assert await Pool(pool.path.parent, PoolSize(0, 0.0)).sweep() == 1
    assert not pool.path.exists()
    assert not standing_directory("one").path.exists()
