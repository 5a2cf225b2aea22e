"""What was kept by hand comes back, whatever happened in between."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.sandbox.workspace.trees import TREES, State, become, contents

from ringfence.errors import PolicyRefused, UsageError
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.restore import WorkspaceConflict
from ringfence.sandbox.workspace.snapshot.named_checkpoints import NamedCheckpoints
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def by_hand(store: SnapshotStore, state: Path) -> NamedCheckpoints:
    """The named checkpoints of `workspace`."""
    return NamedCheckpoints(store, state)


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


@pytest.mark.parametrize("name", ["", "a/b", "-x", "..", "a b", "x" * 101, "a\n"])
async def test_a_bad_name_is_refused(name: str, repository: Path, by_hand: NamedCheckpoints):
    """What could not be a ref of git is no name."""
    with pytest.raises(UsageError, match="cannot name a checkpoint"):
        await by_hand.create(name)


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
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
