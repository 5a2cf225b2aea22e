"""A standby as a user has it, and commands that start from it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-c", "from ringfence.cli import main; main()"]
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Lab:
    """A state directory with a standby, and commands in it."""

    state: Path
    more: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Of its commands."""
        return {**os.environ, "RINGFENCE_STATE_DIR": str(self.state), **self.more}

    def start(self, *words: str | Path, **options: Any) -> "subprocess.Popen[str]":
        """A command as a process of its own."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**self.environment, **options.pop("env", {})}
        given = {**pipes, "text": True, "env": environment, **options}
        return subprocess.Popen([*COMMAND, *map(str, words)], **given)

    def run(self, *words: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
        """A command to its end."""
        with self.start(*words, **options) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE_S)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def status(self) -> dict[str, Any]:
        """What the standby says of itself."""
        told: dict[str, Any] = json.loads(self.run("standby", "status", "--json").stdout)["standby"]
        return told

    def served(self, act: Callable[[], Any]) -> tuple[Any, int]:
        """What an act comes to, and how many commands started from the standby meanwhile."""
        before = self.status()["served"]
        result = act()
        return result, self.status()["served"] - before


def state_of(pid: int) -> str:
    """What a process does, as in proc_pid_stat(5); `Z` if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def soon(holds: Callable[[], bool]) -> bool:
    """Whether something comes to be so, of which nobody tells."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def fork_of(lab: Lab) -> int:
    """The one process that works for a command of the standby."""
    standby = lab.status()["pid"]
    found: list[int] = []

    def is_alone() -> bool:  # what has answered for the standby's status may not have ended yet
        children = Path(f"/proc/{standby}/task/{standby}/children").read_text().split()
        found[:] = [int(each) for each in children if state_of(int(each)) != "Z"]
        return len(found) == 1

    assert soon(is_alone), found
    return found[0]


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A standby for the tests that leave it as it is."""
    yield from _standing(tmp_path_factory.mktemp("standby"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lab]:
    """A standby of a test's own."""
    yield from _standing(tmp_path)


def _standing(folder: Path) -> Iterator[Lab]:
    for lab in _without(folder):
        started = lab.run("standby", "start")
        assert started.returncode == 0, started.stderr
        yield lab


@pytest.fixture
def without(tmp_path: Path) -> Iterator[Lab]:
    """A state directory without a standby; one that a test starts there is ended."""
    yield from _without(tmp_path)


def _without(folder: Path) -> Iterator[Lab]:
    lab = Lab(folder / "state", {})
    lab.state.mkdir(mode=0o700)
    yield lab
    lab.run("standby", "stop", "--now")


@pytest.fixture
def place() -> Iterator[Path]:
    """A workspace that its owner can reach, whoever that is."""
    outer = Path(tempfile.mkdtemp(prefix="ringfence-standby-"))
    outer.chmod(0o711)
    inner = outer / "project"
    inner.mkdir()
    if os.getuid() == 0:
        os.chown(inner, 12_345, 12_345)
    yield inner
    shutil.rmtree(outer)
