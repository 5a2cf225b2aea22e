"""Diff, apply and undo of a run, in every mode."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.workspace.runs import prepare

from ringfence.errors import PolicyRefused, RecordError, RingfenceError
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    apply_run,
    load_record,
    save_record,
    undo_run,
)
from ringfence.sandbox.workspace.run import RunWorkspace

# ruff: noqa: ASYNC220, ASYNC240 - tests prepare their files with plain blocking calls
pytestmark = pytest.mark.anyio


async def start(workspace: Path, state: Path, mode=None, run: str = "run-1") -> RunWorkspace:
    """Prepare a run."""
    return await prepare(workspace, mode, run=run, run_dir=state / "runs" / run, state=state)


def work(prepared: RunWorkspace) -> None:
    """What an agent would do."""
    source = prepared.placement.workspace_source
    assert source is not None
    (source / "a.txt").write_text("agent\n")
    (source / "new").write_text("new\n")
    (source / "sub" / "b.txt").unlink()


async def test_apply_where_one_may_not_write(repository: Path, state: Path):
    """On somebody else's workspace an apply says so and names the way out, and the run is not taken for applied."""
    prepared = await start(repository, state, "clone")
    work(prepared)
    record = (await prepared.deliver(None)).record
    if os.geteuid() == 0:
        record = msgspec.structs.replace(record, uid=12_345, gid=12_345)
    repository.chmod(0o555)
    with pytest.raises(RingfenceError, match=r"cannot be written by you.*`ringfence diff --raw run-1 >"):
        await apply_run(record, state)
    with pytest.raises(RingfenceError, match="not applied"):
        await undo_run(record, state)


async def test_refused_workspace_leaves_nothing(state: Path):
    """A refusal comes before anything is made."""
    with pytest.raises(PolicyRefused):
        await start(Path("/"), state)
    assert not state.exists()


@given(text=st.text(st.characters(exclude_categories=())))
def test_record_holds_any_path(text: str, tmp_path_factory):
    """A record comes back as it was saved, whatever bytes a path has."""
    folder = tmp_path_factory.mktemp("run")
    record = WorkRecord(run="r", workspace=text, mode="bind", uid=1, gid=1, before="x", git_appeared=[text])
    save_record(folder, record)
    assert load_record(folder) == record


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[]"])
def test_damaged_record(content: bytes, tmp_path: Path):
    """A damaged record is an error that names the run."""
    (tmp_path / "work.json").write_bytes(content)
    with pytest.raises(RecordError, match=tmp_path.name):
        load_record(tmp_path)


@pytest.mark.parametrize("act", [apply_run, undo_run])
async def test_one_writes_at_a_time(act, repository: Path, state: Path):
    """While a run, or another undo, holds the workspace, nothing is written to it, and it is said who does."""
    prepared = await start(repository, state, "clone")
    work(prepared)
    done = await prepared.deliver(None)
    await apply_run(done.record, state)
    with held(repository, by="run-2", state=state), pytest.raises(PolicyRefused, match="'run-2'") as caught:
        await act(done.record, state)
    assert caught.value.rule == "workspace-busy"
    assert (repository / "a.txt").read_text() == "agent\n"


UNDO = """
import sys, anyio
from pathlib import Path
from ringfence.sandbox.workspace.record import load_record, undo_run
anyio.run(undo_run, load_record(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def is_staging(repository: Path) -> bool:
    """Half of the new contents lie ready."""
    return bool(list(repository.glob(".ringfence-*/500")))


def is_replacing(repository: Path) -> bool:
    """Some files are as they were, the others not yet."""
    return (repository / "f0").read_text() == "old"


@pytest.mark.slow
@pytest.mark.parametrize("moment", [is_staging, is_replacing])
async def test_killed_undo_is_finished_by_another(moment, repository: Path, state: Path, own):
    """An undo that was killed half-way is done again without force, and leaves nothing of its own behind."""
    for number in range(1000):
        (repository / f"f{number}").write_text("old")
    if os.geteuid() == 0:
        own(repository)
    prepared = await start(repository, state, "bind")
    for number in range(1000):
        (repository / f"f{number}").write_text("agent")
    record = (await prepared.deliver(None)).record
    process = subprocess.Popen([sys.executable, "-c", UNDO, str(prepared.run_dir), str(state)])
    deadline = time.monotonic() + 60
    while not moment(repository) and process.poll() is None:
        assert time.monotonic() < deadline
        await anyio.sleep(0.0002)  # a spinning test would take its processor
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert list(repository.glob(".ringfence-*"))
    await undo_run(record, state)
    assert {file.read_text() for file in repository.glob("f*")} == {"old"}
    assert list(repository.glob(".ringfence-*")) == []
