"""A Docker engine that does not see this machine's files: the machine's own, reached over TLS."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from tests.cli.conftest import give
from tests.sandbox.docker.test_tls import behind_tls, make_certificates

from ringfence.sandbox.container.labels import INSTANCE, instance_id

Cli = Callable[..., Any]
pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def image() -> str:
    """An image that Docker has; skips without an engine."""
    from tests.sandbox.conftest import image_for

    found = image_for("docker")
    assert found is not None
    return found


def left(kind: str) -> list[str]:
    """Containers or volumes of this test's ringfence."""
    listing = ["ps", "-aq"] if kind == "container" else ["volume", "ls", "-q"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    command = ["docker", *listing, "--filter", f"label={INSTANCE}={instance_id()}"]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.split()


@pytest.fixture
def engine(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """The engine, named by the environment; closing it cuts it off. What is left on it is removed."""
    make_certificates(tmp_path)
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with anyio.from_thread.start_blocking_portal() as portal, ExitStack() as connected:
        url = connected.enter_context(portal.wrap_async_context_manager(behind_tls(tmp_path)))
        monkeypatch.setenv("DOCKER_HOST", url)
        yield connected
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        for words, kind in ((["rm", "-fv"], "container"), (["volume", "rm", "-f"], "volume")):
            if rest := left(kind):
                subprocess.run(["docker", *words, *rest], env=environ, check=True, capture_output=True)


@pytest.fixture
def run(engine: ExitStack, ringfence: Cli, workspace: Path, image: str, script: Cli, says: Cli) -> Cli:
    """Let an agent carry out one command on the engine."""

    def go(command: str, *options: str) -> Any:
        model = script(says("x", command), says())
        check = () if "--verify" in options else ("--no-verify",)
        words = ("-C", workspace, "--image", image, "--model", model, *check)
        return ringfence("run", "x", *words, *options)

    return go


@pytest.fixture
def started(engine: ExitStack, start: Cli, workspace: Path, image: str, script: Cli, says: Cli) -> Cli:
    """Start an agent that makes a file and then sleeps, in a process of its own; returns when it does."""

    def begin(*options: str) -> Any:
        model = script(says("x", "touch made", "sleep 1000"), says())
        words = ("run", "x", "-C", workspace, "--image", image, "--model", model, "--json", *options)
        process = start(*words)
        calls = 0
        for line in process.stdout:
            calls += json.loads(line)["event"] == "tool.called"
            if calls == 2:
                return process
        raise AssertionError(process.stderr.read(), line)

    return begin


def exported(events: Cli) -> Any:
    """What the newest run brought out."""
    return next(event["data"] for event in events() if event["event"] == "work.exported")


def test_a_verified_run(run: Cli, ringfence: Cli, workspace: Path, events: Cli):
    """The work is checked on the engine, shown, applied and undone as if it had been here; nothing is left there."""
    ended = run(
        "echo 'print(2)' > app.py; mkdir d; echo x > d/made", "--verify", "grep -q 2 app.py && test -e d/made"
    )
    assert ended.code == 0, ended.err
    assert (workspace / "app.py").read_text() == "print('one')\n"
    assert "+print(2)" in ringfence("diff", "last").out
    assert ringfence("apply", "last").code == 0
    assert ((workspace / "app.py").read_text(), (workspace / "d/made").read_text()) == ("print(2)\n", "x\n")
    assert ringfence("undo", "last").code == 0
    assert ((workspace / "app.py").read_text(), (workspace / "d").exists()) == ("print('one')\n", False)
    assert (left("container"), left("volume")) == ([], [])


def test_a_red_check(run: Cli, workspace: Path):
    """The check sees what the agent left, and nothing else."""
    assert run("touch /tmp/here", "--verify", "test -e /tmp/here").code == 3


def test_commits_come_out(run: Cli, workspace: Path, git: Cli, events: Cli):
    """A commit made on the engine is a ref in the user's repository, on top of the user's own history."""
    git(workspace, "tag", "old")
    give(workspace)
    assert run("git log --oneline old && echo two > app.py && git commit -qam second").code == 0
    (ref,) = exported(events)["refs"]
    assert git(workspace, "log", "--format=%s", ref) == "second\nfirst\n"
    assert git(workspace, "status", "--porcelain") == ""


def test_the_agent_sees_what_is_staged(run: Cli, workspace: Path, git: Cli, events: Cli):
    """Staged, changed and new files look inside as they do outside; other branches stay here, and that is told."""
    git(workspace, "checkout", "-qb", "elsewhere")
    git(workspace, "commit", "-q", "--allow-empty", "-m", "other")
    git(workspace, "checkout", "-q", "-")
    (workspace / "staged").write_text("s\n")
    git(workspace, "add", "staged")
    (workspace / "new").write_text("n\n")
    give(workspace)
    script = "git status --porcelain > seen; git show :staged >> seen; git branch >> seen; git fsck >> seen"
    assert run(f"{script}; true").code == 0
    patch = (run_dir() / "work.patch").read_text().splitlines()
    seen = [line[1:] for line in patch if line.startswith("+") and not line.startswith("+++")]
    assert seen == ["A  staged", "?? new", "?? seen", "s", "* master"]
    assert any("1 branches and tags" in note for note in exported(events)["notes"])


def run_dir() -> Path:
    """Of the newest run."""
    from ringfence.journal import run_dirs

    return run_dirs()[0]


def test_files_of_all_kinds(run: Cli, ringfence: Cli, workspace: Path):
    """Bytes, modes, links, and names that are no UTF-8 are the same on both ways."""
    (workspace / "in").write_bytes(bytes(range(256)) * 100)
    Path(os.fsdecode(os.fsencode(workspace) + b"/\xff\xfe")).write_bytes(b"odd")
    (workspace / "tool").write_text("#!/bin/sh\n")
    (workspace / "tool").chmod(0o755)
    (workspace / "link").symlink_to("/etc/hostname")
    give(workspace)
    body = (
        "import os; b = os.fsencode(os.getcwd()); assert open('in', 'rb').read() == bytes(range(256)) * 100; "
        "assert open(b + b'/\\xff\\xfe', 'rb').read() == b'odd'; assert os.access('tool', os.X_OK); "
        "assert os.readlink('link') == '/etc/hostname'; os.rename(b + b'/\\xff\\xfe', b + b'/\\xfe\\xff'); "
        "os.symlink('../../out', 'made'); os.chmod('tool', 0o644); open('out', 'wb').write(bytes(range(256))); "
        "open('caf\\u00e9', 'w').write('x')"
    )
    ended = run(f"python3 -c {shlex.quote(body)} && touch done")
    assert ended.code == 0
    assert ringfence("apply", "last").code == 0
    names = {os.fsencode(path.name) for path in workspace.iterdir()}
    assert names >= {b"\xfe\xff", b"made", b"out", b"done", "café".encode()}
    assert b"\xff\xfe" not in names
    assert (os.readlink(workspace / "made"), (workspace / "tool").stat().st_mode & 0o111) == ("../../out", 0)  # noqa: PTH115 -- as it is
    assert (workspace / "out").read_bytes() == bytes(range(256))


def test_protected_files_are_put_back(run: Cli, ringfence: Cli, workspace: Path, events: Cli):
    """What cannot be mounted read-only there is put back here, and named."""
    (workspace / ".envrc").write_text("mine\n")
    give(workspace)
    assert (
        run("echo evil > .envrc; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; touch made").code
        == 0
    )
    assert any("put back: '.envrc'" in note for note in exported(events)["notes"])
    assert "evil" not in ringfence("diff", "last").out
    assert exported(events)["files_changed"] == 1


def test_hostile_links(run: Cli, ringfence: Cli, workspace: Path, tmp_path: Path):
    """Links out, fifos, closed and deep directories come back as what they are: nothing else is touched."""
    script = (
        f"ln -s {tmp_path} out; mkfifo pipe; mkdir closed; touch closed/x; chmod 0 closed; "
        "rm -rf .git; ln -s / .git; python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(400)]\""
    )
    assert run(f"{script}; true").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"ca.pem", "cert.pem", "key.pem", "script.yaml"}
    shown = ringfence("diff", "last", "--stat").out
    assert "out" in shown
    assert "closed/x" in shown


def test_bind_is_refused(run: Cli):
    """The workspace itself cannot be had there, and the text says what can."""
    ended = run("true", "--mode", "bind")
    assert ended.code == 4
    assert "does not see this machine's files" in ended.err
    assert "mode 'clone'" in ended.err


def test_read_only(run: Cli, workspace: Path, events: Cli):
    """A workspace to be read is carried one way, and cannot be written there either."""
    assert (
        run("grep one app.py && ! touch made 2>/dev/null && touch /tmp/ok", "--mode", "read_only").code == 0
    )
    returned = [event["data"] for event in events() if event["event"] == "tool.returned"]
    assert "print('one')" in json.dumps(returned[0])
    assert not (workspace / "made").exists()


@pytest.mark.timeout(500)
@pytest.mark.any_user  # a few files are carried as everybody
def test_thousands_of_files(run: Cli, workspace: Path, events: Cli):
    """A workspace of many files goes there and comes back within the patience of a run."""
    for number in range(4_000):
        folder = workspace / f"d{number % 100}"
        if number < 100:
            folder.mkdir()
        (folder / f"f{number}").write_bytes(b"%d" % number)
    give(workspace)
    assert run("find . -name 'f*' -path './d*' | wc -l > count; rm -r d7").code == 0
    assert exported(events)["files_changed"] == 41
    assert "+4000" in (run_dir() / "work.patch").read_text()


def test_a_lost_engine(started: Cli, engine: ExitStack, ringfence: Cli, workspace: Path, events: Cli):
    """An engine that goes in the middle is infrastructure; what was carried there is here as it was."""
    process = started()
    engine.close()
    process.communicate(timeout=60)
    assert process.returncode == 75
    assert exported(events)["files_changed"] == 0
    assert any("what was made inside is lost" in note for note in exported(events)["notes"])
    assert (workspace / "app.py").read_text() == "print('one')\n"


def test_an_interrupt_keeps_the_work(started: Cli, events: Cli):
    """What was made until then is carried back."""
    process = started()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert exported(events)["files_changed"] == 1
    assert (left("container"), left("volume")) == ([], [])


def test_a_killed_sandbox_keeps_the_work(started: Cli, events: Cli):
    """A container that dies by itself is read all the same."""
    process = started()
    container = next(name for name in left("container") if is_running(name))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    subprocess.run(["docker", "kill", container], env=environ, check=True, capture_output=True)
    process.communicate(timeout=60)
    assert process.returncode == 75
    assert exported(events)["files_changed"] == 1


def is_running(container: str) -> bool:
    """Whether a container runs."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    command = ["docker", "inspect", "--format", "{{.State.Running}}", container]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout == "true\n"


def test_kill_9(started: Cli, ringfence: Cli, workspace: Path, image: str):
    """What a killed ringfence left on the engine is gone after the next command."""
    process = started()
    process.kill()
    process.wait()
    assert len(left("volume")) == 1
    assert ringfence("gc").code == 0
    assert (left("container"), left("volume")) == ([], [])
