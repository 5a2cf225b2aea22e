"""What was kept by hand comes back, whatever happened in between."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.sandbox.workspace.trees import TREES, State, become, contents

from ringfence.errors import PolicyRefused, RecordError, UsageError
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.restore import WorkspaceConflict
from ringfence.sandbox.workspace.snapshot.named import BEFORE_RESTORE, NamedCheckpoints
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def by_hand(store: SnapshotStore, state: Path) -> NamedCheckpoints:
    """The named checkpoints of `workspace`."""
    return NamedCheckpoints(store, state)


async def test_a_restore_brings_back_what_was_kept(repository: Path, by_hand: NamedCheckpoints):
    """Edited, deleted and new files are as they were when the checkpoint was taken."""
    before = contents(repository)
    await by_hand.create("good")
    (repository / "a.txt").write_text("edited\n")
    (repository / "run.sh").unlink()
    (repository / "new").write_text("")
    await by_hand.restore("good")
    assert contents(repository) == before


async def test_a_restore_is_taken_back(repository: Path, by_hand: NamedCheckpoints):
    """The state before a restore is a checkpoint of its own."""
    await by_hand.create("good")
    (repository / "a.txt").write_text("later work\n")
    await by_hand.restore("good")
    await by_hand.restore(BEFORE_RESTORE)
    assert (repository / "a.txt").read_text() == "later work\n"


async def test_what_was_ignored_then_stays(repository: Path, by_hand: NamedCheckpoints):
    """Files that no checkpoint holds are not removed, even where the rules went."""
    (repository / ".gitignore").write_text("*.log\n")
    await by_hand.create("good")
    (repository / "x.log").write_text("mine")
    (repository / ".gitignore").unlink()
    await by_hand.restore("good")
    assert (repository / "x.log").read_text() == "mine"


async def test_a_file_that_nothing_holds_is_not_overwritten(repository: Path, by_hand: NamedCheckpoints):
    """A fifo of the user's in the place of a directory is named, and nothing is written."""
    await by_hand.create("good")
    (repository / "sub" / "b.txt").unlink()
    (repository / "sub").rmdir()
    os.mkfifo(repository / "sub")
    with pytest.raises(WorkspaceConflict):
        await by_hand.restore("good")
    assert stat.S_ISFIFO((repository / "sub").lstat().st_mode)


async def test_compares_with_now_and_with_another(repository: Path, by_hand: NamedCheckpoints):
    """A diff ends at the workspace as it is, or at another checkpoint."""
    await by_hand.create("one")
    (repository / "a.txt").write_text("edited\n")
    await by_hand.create("two")
    (repository / "new").write_text("x\n")
    now, patch = await by_hand.diff("one")
    then, _ = await by_hand.diff("one", "two")
    assert [change.path for change in now.files] == ["a.txt", "new"]
    assert [change.path for change in then.files] == ["a.txt"]
    assert b"+edited" in patch


async def test_a_name_is_not_taken_twice(repository: Path, by_hand: NamedCheckpoints):
    """Only by force is a checkpoint replaced."""
    first = await by_hand.create("good")
    (repository / "a.txt").write_text("edited\n")
    with pytest.raises(UsageError, match="--force"):
        await by_hand.create("good")
    second = await by_hand.create("good", force=True)
    assert [one.tree for one in await by_hand.all()] == [second.tree] != [first.tree]


@pytest.mark.parametrize("name", ["", "a/b", "-x", "..", "a b", "x" * 101, "a\n"])
async def test_a_bad_name_is_refused(name: str, repository: Path, by_hand: NamedCheckpoints):
    """What could not be a ref of git is no name."""
    with pytest.raises(UsageError, match="cannot name a checkpoint"):
        await by_hand.create(name)


async def test_an_absent_one_is_told_with_those_there(repository: Path, by_hand: NamedCheckpoints):
    """The error names what could have been meant."""
    await by_hand.create("good")
    with pytest.raises(RecordError, match="'good'"):
        await by_hand.restore("goood")


async def test_a_removed_one_is_gone(repository: Path, by_hand: NamedCheckpoints):
    """Nothing of it is left, also not what it alone knew."""
    await by_hand.create("good")
    await by_hand.remove("good")
    assert await by_hand.all() == []
    with pytest.raises(RecordError):
        await by_hand.diff("good")


async def test_cleaning_up_after_runs_leaves_it(
    repository: Path, store: SnapshotStore, by_hand: NamedCheckpoints
):
    """`gc` drops checkpoints of runs that are gone, not those of the user."""
    await by_hand.create("good")
    await store.take("oldrun/before")
    assert await store.gc(frozenset()) == 1
    assert [one.name for one in await by_hand.all()] == ["good"]
    await by_hand.restore("good")


async def test_waits_for_no_run(repository: Path, state: Path, by_hand: NamedCheckpoints):
    """While a run holds the workspace, none is taken and nothing is restored."""
    await by_hand.create("good")
    with held(repository, by="some-run", state=state):
        for act in (by_hand.create("other"), by_hand.restore("good"), by_hand.diff("good")):
            with pytest.raises(PolicyRefused, match="some-run"):
                await act


@pytest.mark.slow
@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(states=st.lists(TREES, min_size=2, max_size=4), back_to=st.integers(0, 3))
async def test_any_state_comes_back(
    states: list[State], back_to: int, workspace: Path, tmp_path_factory: pytest.TempPathFactory
):
    """From whatever a tree became, a restore leads to just what was kept."""
    state = tmp_path_factory.mktemp("state")
    by_hand = NamedCheckpoints(SnapshotStore(workspace, state), state)
    seen = []
    for number, wanted in enumerate(states):
        become(workspace, wanted)
        seen.append(contents(workspace))
        await by_hand.create(f"state{number}")
    back_to %= len(states)
    await by_hand.restore(f"state{back_to}")
    assert contents(workspace) == seen[back_to]
