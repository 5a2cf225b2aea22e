"""What lies in a workspace and leads out of it leads nowhere, or is told."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import slow_but
from tests.sandbox.workspace.runs import prepare

from ringfence.errors import PolicyRefused
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.protect.mounts import special_files
from ringfence.sandbox.workspace.run import RunWorkspace

pytestmark = pytest.mark.anyio

PLACES = ["s", ".vscode/s", "deep/er/s", "ignored/s", "inner/.git/s"]
TALK = """
import socket, sys
for path in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            print("reached", path)
    except OSError:
        pass
    try:
        open(path, "w").close()
        print("wrote", path)
    except OSError:
        pass
"""


@pytest.fixture
def listening(repository: Path, own) -> Iterator[Path]:
    """A workspace in which a program of the host listens on sockets, and reads a fifo."""
    (repository / ".gitignore").write_text("ignored/\n")
    listeners = []
    for place in PLACES:
        (repository / place).parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(repository / place))
        listener.listen()
        (repository / place).chmod(0o777)
        listeners.append(listener)
    os.mkfifo(repository / "fifo")
    if os.geteuid() == 0:
        own(repository)
    reader = os.open(repository / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    yield repository
    os.close(reader)
    for listener in listeners:
        listener.close()


def start(workspace: Path, state: Path, mode: str):
    """Prepare a run."""
    return prepare(workspace, mode, run="run-1", run_dir=state / "runs" / "run-1", state=state)  # type: ignore[arg-type]


async def reached(sandbox: Sandbox, workspace: Path) -> str:
    """What can be talked to from inside."""
    paths = [str(workspace / place) for place in (*PLACES, "fifo")]
    result = await sandbox.run(["python3", "-c", TALK, *paths], timeout_s=30)
    assert result.ok, result.stderr
    return result.stdout


@pytest.mark.parametrize("mode", slow_but(["bind"], ["bind", "read_only"]))
async def test_sockets_of_the_host_are_out_of_reach(mode: str, listening: Path, state: Path):
    """Sockets and fifos of the host's programs in the workspace can be neither connected to nor written to inside."""
    prepared = await start(listening, state, mode)
    spec = SandboxSpec(backend="bubblewrap", workspace=listening)
    async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
        assert await reached(sandbox, listening) == ""
    assert any("out of the agent's reach" in note for note in prepared.notes)


@pytest.mark.parametrize("mode", ["bind", "read_only"])
async def test_without_a_run(mode: str, listening: Path):
    """They cannot be reached from a sandbox that is opened without a run, either."""
    spec = SandboxSpec(backend="bubblewrap", workspace=listening, mode=mode)
    async with Sandbox.open(spec) as sandbox:
        assert await reached(sandbox, listening) == ""


@pytest.mark.slow
async def test_they_stay_covered_when_moved(listening: Path, state: Path):
    """Renaming, linking or removing directories around a socket does not make it reachable."""
    prepared = await start(listening, state, "bind")
    spec = SandboxSpec(backend="bubblewrap", workspace=listening)
    script = "mv deep moved; mv deep/er moved; ln deep/er/s linked; mv s elsewhere; rm -rf ignored; mv inner/.git ."
    paths = ["moved/er/s", "moved/s", "linked", "elsewhere", *PLACES]
    for _ in range(2):
        async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
            await sandbox.run(["sh", "-c", script], timeout_s=30)
            result = await sandbox.run(["python3", "-c", TALK, *paths], timeout_s=30)
        assert (result.ok, "reached" in result.stdout) == (True, False)
    assert (listening / "deep" / "er" / "s").is_socket()


@pytest.mark.slow
async def test_they_work_on_the_host(listening: Path, state: Path):
    """Programs of the host still reach each other by these sockets."""
    prepared = await start(listening, state, "bind")
    spec = SandboxSpec(backend="bubblewrap", workspace=listening)
    async with Sandbox.start(spec, placement=prepared.placement):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(listening / "s"))


def test_too_many_are_refused():
    """More than can be covered are refused, not left open."""
    with pytest.raises(PolicyRefused, match="mode 'clone'") as caught:
        special_files([b"%d" % number for number in range(201)])
    assert caught.value.rule == "too-many-sockets"


class TestLinks:
    """Files that have another name elsewhere."""

    @pytest.fixture
    def linked(self, repository: Path, ground: Path, own) -> Path:
        """A workspace with a link out, a link within, and one out of an ignored directory."""
        (repository / ".gitignore").write_text("venv/\n")
        (repository / "venv" / "lib").mkdir(parents=True)
        for path in ("out.py", "venv/lib/cached.py"):
            (ground / Path(path).name).touch()
            (repository / path).hardlink_to(ground / Path(path).name)
        (repository / "within.txt").hardlink_to(repository / "a.txt")
        if os.geteuid() == 0:
            own(repository)
        return repository

    async def test_they_are_named(self, linked: Path, state: Path):
        """Hard links to files outside of the workspace are named, ignored ones too; those within it are not."""
        (note,) = _notes_on_links(await start(linked, state, "bind"))
        assert note.startswith("at least 2 files")
        assert "out.py" in note
        assert "venv/lib/cached.py" in note
        assert "within" not in note

    async def test_what_is_read_only_inside_is_left_out(
        self, linked: Path, state: Path, ground: Path, monkeypatch
    ):
        """The links of the environment that ringfence runs from, and of protected files, are written by nobody."""
        (ground / "envrc").touch()
        (linked / ".envrc").hardlink_to(ground / "envrc")
        (linked / "venv" / "pyvenv.cfg").touch()
        monkeypatch.setattr(sys, "prefix", str(linked / "venv"))
        (note,) = _notes_on_links(await start(linked, state, "bind"))
        assert note.startswith("1 file has")
        assert note.endswith("'out.py'")

    @pytest.mark.parametrize("mode", slow_but(["clone"], ["clone", "read_only"]))
    async def test_where_nothing_is_written_nothing_is_said(self, mode: str, linked: Path, state: Path):
        """A clone has no links, and what is read-only changes nothing."""
        assert _notes_on_links(await start(linked, state, mode)) == []

    @pytest.mark.slow
    async def test_unchanged_files_are_told_again(self, linked: Path, state: Path):
        """The next run names them again, though no file has changed."""
        await start(linked, state, "bind")
        second = await prepare(linked, "bind", run="run-2", run_dir=state / "runs" / "run-2", state=state)
        assert len(_notes_on_links(second)) == 1


def _notes_on_links(prepared: RunWorkspace) -> list[str]:
    return [note for note in prepared.notes if "hard links" in note]
