"""To its shell a command from a standby is a process like any other: signals, Ctrl-Z, its end."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.cli.standby.conftest import Lab, fork_of, soon, state_of

pytestmark = pytest.mark.slow


def _processes(marker: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and marker.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def sleeping(place: Path) -> Iterator[Callable[[Lab], "tuple[subprocess.Popen[str], str]"]]:
    """Start a run whose agent sleeps; the client's process, and the mark that what runs inside carries."""
    started: list[subprocess.Popen[str]] = []

    def begin(lab: Lab) -> "tuple[subprocess.Popen[str], str]":
        marker = f"marker-{uuid4().hex}"
        call = {
            "name": "shell",
            "input": {"command": f"touch made; sh -c 'sleep 1000; echo {marker}'", "reasoning": "n"},
        }
        script = lab.state.parent / f"{marker}.yaml"
        script.write_text(json.dumps({"turns": [{"tools": [call]}, {"text": "ok"}]}))
        before = lab.status()["served"]
        words = ("run", "x", "-C", place, "--model", f"scripted:{script}", "--json")
        # As a shell does: a group that nobody could have go on does not obey Ctrl-Z.
        process = lab.start(*words, process_group=0)
        started.append(process)
        assert soon(lambda: len(_processes(marker)) > 0)
        assert soon(lambda: lab.status()["served"] == before + 1), lab.status()
        return process, marker

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_an_interrupt_cancels(own: Lab, sleeping, number: signal.Signals):
    """As by itself: exit 130, and nothing inside is left."""
    process, marker = sleeping(own)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out.splitlines()[-1])["event"]) == (130, "job.ended")
    assert soon(lambda: not _processes(marker))


def test_two_interrupts_stop_at_once(own: Lab, sleeping):
    """The second does not wait for the work to be brought out."""
    process, marker = sleeping(own)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert soon(lambda: not _processes(marker))


def test_a_killed_command_leaves_nothing(own: Lab, sleeping):
    """Its fork dies with it, and its sandbox with that."""
    process, marker = sleeping(own)
    fork = fork_of(own)
    process.kill()
    process.communicate()
    assert soon(lambda: not _processes(marker) and not Path(f"/proc/{fork}").exists())


def test_a_killed_command_whose_fork_stands_still_leaves_nothing(own: Lab, sleeping):
    """Nothing of the fork has to run for it to die, nor of the standby."""
    process, marker = sleeping(own)
    fork, standby = fork_of(own), own.status()["pid"]
    os.kill(fork, signal.SIGSTOP)
    os.kill(standby, signal.SIGSTOP)
    process.kill()
    process.communicate()
    assert soon(lambda: state_of(fork) == "Z" and not _processes(marker))
    os.kill(standby, signal.SIGCONT)


def test_a_command_outlives_its_standby(own: Lab, sleeping):
    """Who kills the standby stops no work; the command ends as ever."""
    process, marker = sleeping(own)
    os.kill(own.status()["pid"], signal.SIGKILL)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out.splitlines()[-1])["event"]) == (130, "job.ended"), err
    assert soon(lambda: not _processes(marker))


def test_the_signal_that_ends_the_fork_ends_the_command(own: Lab, sleeping):
    """A shell sees what it would have seen."""
    process, _ = sleeping(own)
    os.kill(fork_of(own), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_an_end_that_nobody_saw_is_told(own: Lab, sleeping):
    """The fork killed, and the standby before it: exit 75, with a line."""
    process, _ = sleeping(own)
    fork = fork_of(own)
    os.kill(own.status()["pid"], signal.SIGKILL)
    os.kill(fork, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "has died, and so has its standby" in err


def test_ctrl_z_stops_both_and_they_go_on(own: Lab, sleeping):
    """A job of a shell can be put aside, and taken up again."""
    process, _ = sleeping(own)
    fork = fork_of(own)
    process.send_signal(signal.SIGTSTP)
    assert soon(lambda: state_of(fork) == "T")
    assert soon(lambda: state_of(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    assert soon(lambda: state_of(fork) != "T")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
