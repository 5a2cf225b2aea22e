"""What changed and is in no patch is named: files that are ignored, too large, unreadable, or no files."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.sandbox.workspace.runs import prepare

from ringfence.sandbox.workspace.record import apply_run, undo_run
from ringfence.sandbox.workspace.run import Finished, RunWorkspace
from ringfence.sandbox.workspace.snapshot import diff, memo
from ringfence.sandbox.workspace.snapshot.capture import FILE_LIMIT_BYTES

pytestmark = pytest.mark.anyio
Begin = Callable[..., Awaitable[RunWorkspace]]


@pytest.fixture
def begin(repository: Path, state: Path, own) -> Begin:
    """Prepares a run."""

    async def prepared(mode: str = "bind") -> RunWorkspace:
        if os.geteuid() == 0 and mode == "bind":
            own(repository)
        return await prepare(repository, mode, run="run-1", run_dir=state / "runs" / "run-1", state=state)  # type: ignore[arg-type]

    return prepared


def told(done: Finished) -> dict[str, str]:
    """What is in no patch, by path."""
    return {change.path: change.kind for change in done.diff.unkept}


def large(path: Path, more: int = 1) -> None:
    """A file above the limit."""
    with path.open("wb") as file:
        file.truncate(FILE_LIMIT_BYTES + more)


@pytest.mark.slow
async def test_ignored_names_that_are_trusted(repository: Path, begin: Begin):
    """Ignored files that your machine runs by their names are named when they appear, change or go."""
    (repository / ".gitignore").write_text(".envrc\n.vscode/\n.idea\n/deep/\n")
    for path in (".vscode/tasks.json", ".idea/x.xml", "deep/.claude/settings.json", "deep/same/.envrc"):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text("user")
    prepared = await begin()
    (repository / ".envrc").write_text("evil")
    (repository / ".vscode" / "tasks.json").write_text("evil")
    (repository / ".idea" / "x.xml").unlink()
    (repository / "deep" / ".claude" / "settings.json").write_text("evil")
    done = await prepared.deliver(None)
    expected = {
        ".envrc": "added",
        ".vscode/tasks.json": "modified",
        ".idea/x.xml": "deleted",
        "deep/.claude/settings.json": "modified",
    }
    assert (told(done), set(done.runs_on_your_machine)) == (expected, set(expected))


@pytest.mark.slow
async def test_what_others_packages_bring_is_not_named(repository: Path, begin: Begin):
    """Ignored files that are only read, such as `.editorconfig`, are not named."""
    (repository / ".gitignore").write_text("node_modules/\n")
    prepared = await begin()
    (repository / "node_modules" / "x").mkdir(parents=True)
    (repository / "node_modules" / "x" / ".editorconfig").touch()
    (repository / "node_modules" / "x" / ".npmrc").touch()
    assert told(await prepared.deliver(None)) == {"node_modules/x/.npmrc": "added"}


@pytest.mark.slow
async def test_a_restored_time_hides_nothing(repository: Path, begin: Begin):
    """An ignored file that was changed is named although its size and time are the same."""
    (repository / ".gitignore").write_text(".envrc\n")
    file = repository / ".envrc"
    file.write_text("user")
    prepared = await begin()
    status = file.stat()
    file.write_text("evil")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert told(await prepared.deliver(None)) == {".envrc": "modified"}


@pytest.mark.slow
async def test_large_files(repository: Path, begin: Begin):
    """Files too large to keep are named with their sizes, whether new, changed, gone or grown; others are not."""
    for name in ("changed", "gone", "same"):
        large(repository / name)
    prepared = await begin()
    large(repository / "changed", 2)
    (repository / "gone").unlink()
    large(repository / "new")
    large(repository / "a.txt")
    done = await prepared.deliver(None)
    assert told(done) == {"changed": "modified", "gone": "deleted", "new": "added", "a.txt": "modified"}
    assert done.diff.files == ()
    assert any(f"now {FILE_LIMIT_BYTES + 2} bytes" in note for note in done.notes)


@pytest.mark.slow
async def test_fifos_and_sockets(repository: Path, begin: Begin, state: Path):
    """Fifos that the run made are named, and undo removes them; earlier ones stay."""
    os.mkfifo(repository / "mine")
    prepared = await begin()
    os.mkfifo(repository / ".gitignore")
    done = await prepared.deliver(None)
    await undo_run(done.record, state)
    assert told(done) == {".gitignore": "added"}
    assert ((repository / "mine").exists(), (repository / ".gitignore").exists()) == (True, False)


async def test_clone(repository: Path, begin: Begin, state: Path):
    """In a clone, which has no ignored files, only what the run made there is named; applying does not bring it."""
    (repository / ".gitignore").write_text(".envrc\n")
    (repository / ".envrc").write_text("user")
    large(repository / "large")
    prepared = await begin("clone")
    clone = prepared.placement.workspace_source
    assert clone is not None
    large(clone / "new")
    done = await prepared.deliver(None)
    await apply_run(done.record, state)
    assert (told(done), (repository / "new").exists()) == ({"new": "added"}, False)


@pytest.mark.slow
async def test_what_a_check_does_is_named(repository: Path, begin: Begin):
    """An ignored file that only the check wrote is the run's, too."""
    (repository / ".gitignore").write_text(".envrc\n")
    prepared = await begin()
    work = await prepared.deliver(None)
    assert await prepared.deliver_again(work) is None
    (repository / ".envrc").write_text("evil")
    again = await prepared.deliver_again(work)
    assert again is not None
    assert again.runs_on_your_machine == (".envrc",)


@pytest.mark.slow
async def test_a_flood_hides_nothing_silently(
    repository: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
):
    """If more files changed than are watched, those at the top are named, and so is that there may be more."""
    for module in (diff, memo):
        monkeypatch.setattr(module, "MAX_MARKS", 100)
    (repository / ".gitignore").write_text("/a/\n.envrc\n")
    prepared = await begin()
    (repository / "a" / ".vscode").mkdir(parents=True)
    for number in range(101):
        (repository / "a" / ".vscode" / str(number)).touch()
    (repository / ".envrc").write_text("evil")
    done = await prepared.deliver(None)
    assert {".envrc": "added", "./": "unseen"}.items() <= told(done).items()


@pytest.mark.slow
async def test_sparse_files_are_named_not_read(repository: Path, begin: Begin):
    """Files that are long only by their length are named and not kept; a short one, or one that is there, is kept."""
    prepared = await begin()
    for number in range(90):
        with (repository / f"big{number}").open("wb") as file:
            file.truncate(FILE_LIMIT_BYTES - 1)
    with (repository / "short").open("wb") as file:
        file.truncate(1024**2)
    (repository / "dense").write_bytes(b"\0" * 5 * 1024**2)
    done = await prepared.deliver(None)
    assert {change.path for change in done.diff.files} == {"short", "dense"}
    assert told(done) == {f"big{number}": "added" for number in range(90)}
