"""The command as a user has it: real sandboxes, a scripted model over HTTP, a workspace under git."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.forked import Forked

from ringfence.cli import main
from ringfence.journal import resolve, run_dirs, verify_run

COMMAND = [sys.executable, "-c", "from ringfence.cli import main; main()"]


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def ringfence(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run a command in this process."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["ringfence", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfd.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 1, captured.out, captured.err)

    return run


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start a command as a process of its own; what is left of it is killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # What imports the model's SDK is forked: it computes for seconds until it has it.
        is_dear = arguments[0] == "run" and "preexec_fn" not in options
        make = Forked[bytes] if is_dear else subprocess.Popen[bytes]
        process = make([*COMMAND, *map(str, arguments)], **{**streams, **options})
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run git in a directory, without anybody's settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    identity = ["-c", "user.name=T", "-c", "user.email=t@t", "-c", "safe.directory=*"]

    def run(place: Path, *arguments: str) -> str:
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory that its owner can reach, whoever that is: the parents of `tmp_path` are private."""
    outer = Path(tempfile.mkdtemp(prefix="ringfence-cli-"))
    outer.chmod(0o711)
    inner = outer / "project"
    inner.mkdir()
    yield inner
    for folder, names, _ in os.walk(outer):
        for name in names:
            (Path(folder) / name).chmod(0o700)
    shutil.rmtree(outer)


@pytest.fixture(scope="session")
def made_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project under git, to be copied: to make it takes git three starts."""
    made = tmp_path_factory.mktemp("made") / "project"
    made.mkdir()
    (made / "app.py").write_text("print('one')\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=T", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *identity, *words], cwd=made, env=environment, check=True)
    shutil.rmtree(made / ".git" / "hooks")
    return made


@pytest.fixture
def workspace(place: Path, made_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project under git, the current directory; of an ordinary owner, so that root works on it itself."""
    monkeypatch.chdir(place)
    shutil.copytree(made_project, place, dirs_exist_ok=True)
    give(place)
    return place


@pytest.fixture
def roots(workspace: Path) -> Path:
    """The same project, of whoever runs the tests."""
    give(workspace, os.getuid())
    return workspace


def give(place: Path, uid: int = 12_345) -> None:
    """Give a tree away, as far as one can."""
    if os.getuid() == 0:
        for folder, _, names in os.walk(place):
            for name in (".", *names):
                os.chown(Path(folder, name), uid, uid, follow_symlinks=False)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write a script and name the model that follows it."""

    def write(*turns: dict[str, Any], **more: Any) -> str:
        file = tmp_path / "script.yaml"
        file.write_text(json.dumps({"price": {"input": 1, "output": 1}, "turns": turns, **more}))
        return f"scripted:{file}"

    return write


@pytest.fixture
def says() -> Callable[..., dict[str, Any]]:
    """A turn of the model: a text, and shell commands."""

    def turn(text: str = "ok", *commands: str, **more: Any) -> dict[str, Any]:
        calls = [{"name": "shell", "input": {"command": each, "reasoning": "needed"}} for each in commands]
        return {"text": text, **({"tools": calls} if calls else {}), **more}

    return turn


@pytest.fixture
def events() -> Callable[..., list[dict[str, Any]]]:
    """The journal of a run, verified first."""

    def read(run: str = "last", status: str = "sealed") -> list[dict[str, Any]]:
        path = run_dirs()[0] if run == "last" else resolve(run)
        assert verify_run(path).status == status
        return [json.loads(line) for line in (path / "journal.jsonl").read_bytes().splitlines()]

    return read


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a scripted model as a server in a process of its own; its base URL."""
    started: list[subprocess.Popen[str]] = []

    def start(*turns: dict[str, Any]) -> str:
        (tmp_path / "turns.json").write_text(json.dumps({"turns": turns}))
        command = [sys.executable, "-m", "ringfence.testing.scripted_model", str(tmp_path / "turns.json")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    yield start
    for process in started:
        process.terminate()
        process.communicate()
