"""What is told before a run of where the workspace lies."""

from pathlib import Path

import pytest
from tests.cases import slow_after
from tests.sandbox.workspace.runs import prepare

from ringfence.config import load
from ringfence.errors import ConfigurationError
from ringfence.sandbox.workspace.record import apply_run, load_record, undo_run
from ringfence.sandbox.workspace.run import RunWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory, for the configuration as well."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


async def start(workspace: Path, state: Path, run: str = "run-1") -> RunWorkspace:
    """Prepare a run on a clone."""
    return await prepare(workspace, "clone", run=run, run_dir=state / "runs" / run, state=state)


async def leave(workspace: Path, state: Path, name: str, text: str) -> None:
    """Do and apply what an agent would that makes a project file."""
    prepared = await start(workspace, state)
    source = prepared.placement.workspace_source
    assert source is not None
    (source / name).write_text(text)
    await apply_run((await prepared.deliver(None)).record, state)


async def test_part_of_a_repository(repository: Path, state: Path):
    """In a subdirectory of a repository it is said that the rest is out of sight, and how to show it."""
    (note,) = (await start(repository / "sub", state)).notes
    assert f"a part of the repository at {str(repository)!r}" in note
    assert f"`-C {repository}`" in note


async def test_whole_repository_and_none(repository: Path, ground: Path, state: Path):
    """A repository's own directory, and one that belongs to none, are nothing to tell of."""
    (ground / "plain").mkdir()
    assert (await start(repository, state)).notes == ()
    assert (await start(ground / "plain", state, "run-2")).notes == ()


@pytest.mark.parametrize(
    ("name", "text"),
    slow_after(
        1,
        [
            ("ringfence.yaml", "sandbox: {network: open}\n"),
            ("ringfence.yaml", "nonsense: 1\n"),
            ("ringfence.yaml", "{"),
            ("ringfence.yml", ""),
        ],
    ),
    ids=["loosens", "unknown-key", "no-yaml", "wrong-name"],
)
async def test_error_names_the_run_that_made_the_file(name: str, text: str, repository: Path, state: Path):
    """A project file that stops later runs is blamed on the run that made it, and undoing that run helps."""
    await leave(repository, state, name, text)
    with pytest.raises(ConfigurationError, match=r"run 'run-1' created or changed.*`ringfence undo run-1`"):
        load(repository)
    await undo_run(load_record(state / "runs" / "run-1"), state)
    load(repository)


@pytest.mark.slow
async def test_file_that_only_tightens_is_told(repository: Path, state: Path):
    """A project file that a run left and that holds is named at the start of the next, until somebody changes it."""
    await leave(repository, state, "ringfence.yaml", "limits: {turns: 1}\n")
    (note,) = (await start(repository, state, "run-2")).notes
    assert "run 'run-1' created or changed 'ringfence.yaml'" in note
    (repository / "ringfence.yaml").write_text("limits: {turns: 2}\n")
    assert (await start(repository, state, "run-3")).notes == ()
