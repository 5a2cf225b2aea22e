"""What a run on a private copy costs in git processes, and that it is an exact copy all the same."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.sandbox.workspace.runs import prepare

from ringfence.process import run_process
from ringfence.sandbox.workspace.git import command, config
from ringfence.sandbox.workspace.record import diff_run, has_changes, load_record, open_store, patch_run
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that were started: all of them are started by one function."""
    commands: list[str] = []

    async def noted(argv: Sequence[str], **more: object) -> object:
        words = [str(word) for word in argv[1:]]
        while words[0] == "-c":
            del words[:2]
        commands.append(words[0])
        return await run_process(argv, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "run_process", noted)
    monkeypatch.setattr(config, "_PARSED", {})
    return commands


async def test_git_processes_of_a_run(repository: Path, state: Path, started: list[str]):
    """A run on a copy starts at most three git processes after the first, and none where nothing was changed."""
    first = await prepare(repository, "clone", run="r1", run_dir=state / "runs" / "r1", state=state)
    await first.deliver(None)
    assert started == ["config", "ls-files", "fast-import"]
    started.clear()
    same = await prepare(repository, "clone", run="r2", run_dir=state / "runs" / "r2", state=state)
    await same.deliver(None)
    assert started == []
    changing = await prepare(repository, "clone", run="r3", run_dir=state / "runs" / "r3", state=state)
    assert changing.placement.workspace_source is not None
    (changing.placement.workspace_source / "new").write_text("x\n")
    work = await changing.deliver(None)
    assert started == ["fast-import", "diff-tree"]
    assert [change.path for change in work.diff.files] == ["new"]


async def test_changes_and_patch_by_one_git_are_those_of_two(repository: Path, state: Path):
    """Whatever the files are named, the changes and the patch are the same as when git is asked for each alone."""
    prepared = await prepare(repository, "clone", run="r1", run_dir=state / "runs" / "r1", state=state)
    clone = prepared.placement.workspace_source
    assert clone is not None
    names = [
        b'quote"d',
        b"line\nend",
        b"tab\there",
        b"back\\slash",
        b"n\xc3\xb6n-\xff",
        b":colon",
        b" space ",
        b"\x01",
        b"\\101",
    ]
    for number, name in enumerate(names):
        (clone / os.fsdecode(name)).write_bytes(b"\0" if number % 3 == 0 else b"text %d\n" % number)
    (clone / "empty").touch()
    (clone / "a.txt").unlink()
    (clone / "run.sh").chmod(0o644)
    (clone / "sub" / "b.txt").unlink()
    (clone / "sub" / "b.txt").symlink_to("../a.txt")
    work = await prepared.deliver(None)
    store = open_store(work.record, state)
    assert {change.raw_path for change in work.diff.files} == {
        *names,
        b"empty",
        b"a.txt",
        b"run.sh",
        b"sub/b.txt",
    }
    assert work.diff == await diff_run(work.record, store)
    assert work.patch == await patch_run(work.record, store)


async def test_a_file_that_changes_after_the_snapshot_is_copied_as_it_was(repository: Path, state: Path):
    """The copy holds what the snapshot holds, whatever happens to the files in the workspace meanwhile."""
    from ringfence.sandbox.workspace.restore import materialise
    from ringfence.sandbox.workspace.run_as import Actor

    store = SnapshotStore(repository, state)
    taken = await store.take("r/before")
    (repository / "a.txt").write_text("two\n")
    (repository / "run.sh").unlink()
    (repository / "run.sh").symlink_to("/etc/passwd")
    (repository / "sub" / "b.txt").unlink()
    os.mkfifo(repository / "sub" / "b.txt")
    (repository / "later").write_text("later\n")
    copy = state / "copy"
    copy.mkdir()
    await materialise(store, taken.id, copy, Actor.current(), taken=taken)
    files = {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*") if not path.is_dir()}
    assert files == {"a.txt": "one\n", "run.sh": "#!/bin/sh\n", "sub/b.txt": "two\n"}
    assert not (copy / "run.sh").is_symlink()
    assert (copy / "run.sh").stat().st_mode & 0o100


async def test_a_run_that_keeps_nothing_starts_no_git(repository: Path, state: Path, started: list[str]):
    """Where nothing is kept, the copy is removed, whatever was done to it, and nothing is compared."""
    run_dir = state / "runs" / "r1"
    prepared = await prepare(repository, "clone", run="r1", run_dir=run_dir, state=state)
    clone = prepared.placement.workspace_source
    assert clone is not None
    (clone / "new").write_text("x\n")
    (clone / "shut").mkdir()
    (clone / "shut" / "inner").touch()
    (clone / "shut").chmod(0)
    started.clear()
    await prepared.discard()
    assert started == []
    assert not clone.exists()
    record = load_record(run_dir)
    assert await patch_run(record, open_store(record, state)) == b""
    assert not has_changes(record, state)
    assert any("discarded" in note for note in record.notes)
