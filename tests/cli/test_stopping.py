"""Interrupts, kills and full disks: what was made is kept, nothing is left behind, the record holds."""

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from ringfence.journal import run_dirs, runs_dir, verify_run

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def run(start: Cli, workspace: Path, script: Cli, says: Cli) -> Cli:
    """Start an agent that makes a file and then sleeps; returns when it does."""

    def begin(*options: str, **more: Any) -> "subprocess.Popen[bytes]":
        model = script(says("x", "touch made", more.pop("command", "sleep 1000")), says())
        process = start("run", "x", "-C", workspace, "--model", model, "--json", *options, **more)
        _read_until(process, "tool.called", 2)
        return process  # type: ignore[no-any-return]

    return begin


def job_end(events: "list[dict[str, Any]]") -> dict[str, Any]:
    """How a run ended, by its events."""
    (data,) = [event["data"] for event in events if event["event"] == "job.ended"]
    return dict(data)


def _read_until(process: "subprocess.Popen[bytes]", event: str, count: int = 1) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        count -= json.loads(line)["event"] == event
        if count == 0:
            return
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.fixture
def hangups_are_heard() -> Iterator[None]:
    """Also where the tests were started by nohup, which a run would obey."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_are_heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_one_interrupt_keeps_the_work(run: Cli, events: Cli, number: signal.Signals):
    """Cancelled, exit 130, what was made is brought out, the record is sealed."""
    process = run()
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    names = [json.loads(line)["event"] for line in out.splitlines()]
    assert (process.returncode, "work.exported" in names, names[-1]) == (130, True, "job.ended")
    assert job_end(events())["state"] == "cancelled"


def test_two_interrupts_stop_at_once(run: Cli, events: Cli):
    """The second one does not wait for the work to be brought out; the record is sealed all the same."""
    process = run()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # two of one kind would be merged into one
    process.communicate(timeout=60)
    assert (process.returncode, job_end(events())["state"]) == (130, "cancelled")


def test_an_interrupt_stops_a_check(start: Cli, workspace: Path, script: Cli, says: Cli, events: Cli):
    """A check that hangs need not be waited for."""
    process = start(
        "run", "x", "-C", workspace, "--model", script(says()), "--json", "--verify", "sleep 1000"
    )
    _read_until(process, "verification.started")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert (process.returncode, "before the check ended" in job_end(events())["reason"]) == (130, True)


def test_a_reader_who_leaves_stops_the_run(run: Cli, events: Cli):
    """Nobody pays for an agent that nobody watches: it is cancelled and its work kept."""
    process = run(command="sleep 1")
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"cancelled: stopped: nobody reads the output" in err) == (141, True)
    assert "nobody reads" in job_end(events())["reason"]


def test_a_run_that_goes_on_is_not_acted_on(
    run: Cli, ringfence: Cli, workspace: Path, script: Cli, says: Cli
):
    """Its work is not known yet, and its conversation is not over."""
    run()
    refused = ringfence("diff", "last")
    continued = ringfence("run", "x", "-C", workspace, "--model", script(says()), "--continue")
    assert (refused.code, continued.code) == (2, 2)
    assert f"`ringfence runs stop {run_dirs()[0].name[-8:]}`" in refused.err
    assert "still running" in continued.err


def test_a_run_is_stopped_from_another_terminal(run: Cli, ringfence: Cli, events: Cli):
    """It ends as after Ctrl-C, with its work kept; one that has ended is not stopped again."""
    process = run()
    verified = ringfence("runs", "verify")
    assert (verified.code, verified.out.startswith("still running")) == (3, True)
    removal = ringfence("runs", "rm", "last", "--yes")
    assert (removal.code, "`ringfence runs stop " in removal.err) == (2, True)
    stopped = ringfence("runs", "stop")
    process.communicate(timeout=60)
    assert (stopped.code, "cancelled: stopped by the user" in stopped.err, process.returncode) == (
        0,
        True,
        130,
    )
    assert job_end(events())["state"] == "cancelled"
    assert "made" in ringfence("diff", "--stat").out
    assert ringfence("runs", "stop").code == 2


def test_a_sandbox_killed_from_outside_is_infrastructure(run: Cli, events: Cli):
    """Not the agent's fault, so its own exit code; what was made is kept."""
    marker = f"marker-{uuid4().hex}"
    process = run(command=f"sh -c 'sleep 1000; echo {marker}'")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    process.communicate(timeout=60)
    exported = next(event["data"] for event in events() if event["event"] == "work.exported")
    assert (process.returncode, exported["files_changed"]) == (75, 1)
    assert _soon(lambda: not _processes(marker))


def _processes(marker: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if marker.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def _soon(holds: Callable[[], bool]) -> bool:
    async def wait() -> None:
        with anyio.move_on_after(60):
            while not holds():  # noqa: ASYNC110 - other processes tell nobody
                await anyio.sleep(0.02)

    anyio.run(wait)
    return holds()


@pytest.fixture
def killed(run: Cli) -> str:
    """A run killed by -9 in the middle of a tool call; the marker its command carries."""
    marker = f"marker-{uuid4().hex}"
    command = f"(setsid sh -c 'sleep 1000; echo {marker}' &) ; sh -c 'sleep 1000; echo {marker}'"
    process = run(command=command)
    assert _soon(lambda: len(_processes(marker)) >= 2)
    process.kill()
    process.wait()
    return marker


def test_the_next_command_closes_a_killed_run(killed: str, ringfence: Cli, workspace: Path, events: Cli):
    """It is marked, sealed and listed, and nothing of it is left in the control groups."""
    name = run_dirs()[0].name
    ended = ringfence("exec", "-C", workspace, "--", "true")
    listed = ringfence("runs", "ls").out
    assert (f"run {name} was interrupted" in ended.err, f"{name}  interrupted" in listed) == (True, True)
    closed = events(name)
    sandbox = next(event["data"]["sandbox_id"] for event in closed if event["event"] == "sandbox.created")
    assert job_end(closed)["state"] == "interrupted"
    # `os.walk` passes over the groups of other tests' sandboxes that go meanwhile.
    assert not [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if sandbox in name]


def test_a_killed_run_is_gone_on_with(killed: str, ringfence: Cli, workspace: Path, script: Cli, says: Cli):
    """Its conversation is whole: the call without a result is answered as not run."""
    model = script(says(expect={"messages": 3, "last_tool_result": "not run"}))
    assert ringfence("run", "more", "-C", workspace, "--model", model, "--continue").code == 9


def test_a_killed_run_is_undone_after_a_look(killed: str, ringfence: Cli, workspace: Path):
    """On the workspace itself its changes cannot be told from the user's; `diff` shows them first."""
    assert ringfence("undo", "last").code == 1
    assert "made" in ringfence("diff", "last").out
    assert (ringfence("undo", "last").code, (workspace / "made").exists()) == (0, False)


def test_a_full_disk_ends_the_run_and_keeps_the_record(
    start: Cli, workspace: Path, script: Cli, says: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Infrastructure, one line, and a journal that verifies as far as it goes."""
    full = tmp_path / "small"
    full.mkdir()
    if os.getuid() != 0:
        pytest.skip("needs root, for a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "small", full], check=True)
    try:
        monkeypatch.setenv("RINGFENCE_STATE_DIR", str(full))
        turns = [says("x", f"head -c 150000 /dev/urandom | base64 -w0 # {number}") for number in range(60)]
        process = start("run", "x", "-C", workspace, "--model", script(*turns), "--max-tokens", "999000111")
        out, err = process.communicate(timeout=90)
        told = (out + err).decode()
        assert (process.returncode, "Traceback" in told) == (75, False), told[-2000:]
        journal = next(runs_dir().iterdir())
        assert verify_run(journal).status in ("sealed", "open")
    finally:
        subprocess.run(["umount", "-l", full], check=True)


def test_a_file_size_limit_ends_the_run_in_a_line(start: Cli, workspace: Path, script: Cli, says: Cli):
    """So does a journal that may not grow, also for an ordinary user."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    turns = [says("x", "head -c 20000 /dev/urandom | base64 -w0") for _ in range(60)]
    process = start("run", "x", "-C", workspace, "--model", script(*turns), preexec_fn=limit)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, b"Traceback" in out + err) == (75, False), (out + err)[-2000:]


def test_an_interrupt_ends_the_wait(run: Cli, start: Cli, workspace: Path):
    """At the first one: there is nothing to bring out."""
    first = run()
    known = set(runs_dir().iterdir())
    second = start("exec", "-C", workspace, "--mode", "bind", "--wait", "5m", "--", "true")
    _until_begun(second, known)
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 130
    first.kill()


def _until_begun(process: "subprocess.Popen[bytes]", known: set[Path]) -> None:
    """Until it has a record of its own."""
    deadline = time.monotonic() + 60
    while set(runs_dir().iterdir()) == known:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
