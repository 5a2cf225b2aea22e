"""The view of the file system, as it is told to bwrap."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox import Placement, SandboxSpec
from ringfence.sandbox.base import BindMount, Launch
from ringfence.sandbox.bubblewrap.stage import Staging
from ringfence.sandbox.bubblewrap.view import Arguments, add_mounts


@pytest.fixture(params=[False, True], ids=["user", "root"])
def arguments(request: pytest.FixtureRequest) -> Iterator[Arguments]:
    """As a user's caller binds, and as root's does."""
    made = Arguments(Staging() if request.param else None)
    yield made
    made.close()


def test_link_for_a_source(arguments: Arguments, tmp_path: Path) -> None:
    """A source that is a link is refused: who made it may want to see what it points to."""
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(SandboxStartFailed, match="symbolic link"):
        arguments.bind(tmp_path / "link", "/data", read_only=True)


@pytest.mark.parametrize(("read_only", "word"), [(True, "--ro-bind"), (False, "--bind")])
def test_what_is_read_only_is_bound_so(
    arguments: Arguments, tmp_path: Path, read_only: bool, word: str
) -> None:
    """By whichever of bwrap's two ways a caller binds."""
    arguments.bind(tmp_path, "/data", read_only=read_only)
    assert arguments.words[0].removesuffix("-fd") == word


def test_source_is_held(tmp_path: Path) -> None:
    """A user's source is bound by the descriptor of what it was, so that none can be put in its place."""
    arguments = Arguments()
    (tmp_path / "source").mkdir()
    arguments.bind(tmp_path / "source", "/data", read_only=False)
    word, number, target = arguments.words
    assert (word, target) == ("--bind-fd", "/data")
    assert Path(f"/proc/self/fd/{number}").readlink() == tmp_path / "source"
    arguments.close()
    assert not Path(f"/proc/self/fd/{number}").exists()


def test_users_inside() -> None:
    """Accounts inside are those of the sandbox, with its ids."""
    arguments = Arguments()
    add_mounts(arguments, Launch("id", SandboxSpec(), Placement(1500, 1600, None, None), ()), ())
    place = arguments.words.index("/etc/passwd")
    text = os.pread(int(arguments.words[place - 1]), 4096, 0)
    arguments.close()
    assert b"agent:x:1500:1600:" in text


def _staged(
    staging: Staging, argv: list[str], entrances: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    """What a command came to that the staging program became."""
    command, wire = staging.program("/usr/bin/python3")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(wire,))
    anyio.run(partial(staging.go_on, argv, {}, uid=1500, gid=1600, entrances=entrances))
    stdout, stderr = process.communicate(timeout=30)
    staging.close()
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def test_staging_that_is_called_off() -> None:
    """A program that is never told what to stage, because its caller failed or died, ends and starts nothing."""
    staging = Staging()
    command, wire = staging.program(sys.executable)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=(wire,))
    staging.close()
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root stages")
def test_what_was_staged_is_not_inherited(tmp_path: Path) -> None:
    """Of all that the staging program held, only what was lent to it goes on to bwrap."""
    staging = Staging()
    staging.add(tmp_path, tmp_path.stat())
    with (tmp_path / "lent").open("w") as lent:
        number = staging.pass_descriptor(lent.fileno())
        listed = _staged(staging, ["/bin/ls", "/proc/self/fd"]).stdout.split()
    # The last is the directory that is being listed.
    assert listed == [b"0", b"1", b"2", str(number).encode(), b"3"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root stages")
def test_staging_shortens_the_list_of_mounts_for_itself_only() -> None:
    """What bwrap needs nothing of is not mounted where it starts, and stays mounted for everybody else."""

    def system(mounts: str) -> list[str]:
        return [line for line in mounts.splitlines() if line.split()[4].startswith("/sys")]

    before = Path("/proc/self/mountinfo").read_text()
    assert system(before)
    done = _staged(Staging(), ["/bin/cat", "/proc/self/mountinfo"])
    assert done.stdout
    assert not system(done.stdout.decode())
    assert system(Path("/proc/self/mountinfo").read_text()) == system(before)


def test_a_home_in_a_system_directory_is_covered(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Service accounts live below /opt and the like, which are shown: their keys are not."""
    monkeypatch.setenv("HOME", "/usr/share")
    launch = Launch(
        "x", SandboxSpec(), Placement(uid=1000, gid=1000, workspace=None, workspace_source=None), ()
    )
    add_mounts(arguments, launch, ())
    shown, covered = arguments.words.index("/usr"), arguments.words.index("/usr/share")
    assert shown < covered
    assert arguments.words[covered - 1] == "--tmpfs"


@pytest.mark.skipif(
    not Path("/etc/ssl/private").is_dir(), reason="this machine keeps no keys in /etc/ssl/private"
)
def test_keys_of_services_are_covered(arguments: Arguments) -> None:
    """A directory of keys that a group of the caller's may read is empty inside."""
    add_mounts(arguments, Launch("id", SandboxSpec(), Placement(1500, 1500, None, None), ()), ())
    place = arguments.words.index("/etc/ssl/private")
    assert arguments.words[place - 1] == "--tmpfs"
    assert place > arguments.words.index("/etc/ssl")


def test_link_on_the_way(arguments: Arguments, tmp_path: Path) -> None:
    """A directory of the workspace that became a link shows nothing of where that leads to."""
    (tmp_path / "private" / ".git").mkdir(parents=True)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "x").symlink_to(tmp_path / "private")
    mount = BindMount(workspace / "x" / ".git", workspace / "x" / ".git", read_only=True)
    placement = Placement(1500, 1500, workspace, workspace, mounts=(mount,))
    with pytest.raises(SandboxStartFailed, match=r"x/\.git.*Not a directory"):
        add_mounts(arguments, Launch("id", SandboxSpec(), placement, ()), ())


def test_link_above_the_workspace(arguments: Arguments, tmp_path: Path) -> None:
    """Nor does a directory above the workspace, whose path was resolved."""
    (tmp_path / "private" / "app").mkdir(parents=True)
    (tmp_path / "over").symlink_to(tmp_path / "private")
    workspace = tmp_path / "over" / "app"
    with pytest.raises(SandboxStartFailed, match=r"over/app.*Not a directory"):
        add_mounts(
            arguments, Launch("id", SandboxSpec(), Placement(1500, 1500, workspace, workspace), ()), ()
        )


@pytest.mark.skipif(os.getuid() != 0, reason="only root stages")
def test_staged_source_that_was_replaced(tmp_path: Path) -> None:
    """What was looked at is what is shown, or nothing is."""
    source, staging, later = tmp_path / "source", Staging(), Staging()
    source.mkdir()
    staging.add(source, source.stat())
    later.add(source, source.stat())
    assert _staged(staging, ["/bin/echo", "shown"]).stdout == b"shown\n"
    source.rename(tmp_path / "older")
    source.mkdir()
    done = _staged(later, ["/bin/echo", "shown"])
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"was replaced" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root stages")
def test_a_group_that_cannot_be_entered(tmp_path: Path) -> None:
    """Nothing is started outside of its limits."""
    missing = tmp_path / "group" / "tasks"
    done = _staged(Staging(), ["/bin/echo", "x"], entrances=(missing,))
    assert (done.returncode, done.stdout) == (1, b"")
    assert f"could not enter control group {bytes(missing)!r}" in done.stderr.decode()
