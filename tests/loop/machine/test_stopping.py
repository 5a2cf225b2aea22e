"""Loops that are stopped while a role works, from outside and by the terminal."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.leftovers import processes_below
from tests.loop.machine.project import PATIENCE_S, Project, case, instead, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_CANCELLED = 130
_SLEEP_S = str(4_000_000 + os.getpid())
"""Of this process's tests alone: all processes of the machine are looked at."""


def _until(project: Project, see: Callable[[], bool]) -> None:
    """Follow the loop's own rows until they say so."""
    import time

    deadline = time.monotonic() + PATIENCE_S
    while not see():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _is_coding(project: Project) -> bool:
    return _sleeps(project) and project.rows()["one"]["stage"] == "code"


def _sleeps(project: Project) -> bool:
    return any(b"sleep\0" + _SLEEP_S.encode() in _line(file) for file in Path("/proc").glob("[0-9]*/cmdline"))


def _line(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_it_is_cancelled_interrupted_and_gone_on_with(tmp_path: Path):
    """By another process, by Ctrl-C once and twice: within seconds, and nothing is left of what ran."""
    hangs = case("role: implementor", run=f"sleep {_SLEEP_S}")
    project = Project.make(tmp_path, [story_of("one")], instead(hangs))

    def cancel(_group: int) -> None:
        second = project.start()
        assert (second.returncode, "`ringfence loop logs --follow" in second.stderr) == (2, True), second
        assert project.run("loop", "resume").returncode == 2
        assert project.run("loop", "cancel").returncode == 0

    def interrupt(group: int) -> None:
        os.killpg(group, signal.SIGINT)

    def interrupt_twice(group: int) -> None:
        os.killpg(group, signal.SIGINT)
        os.killpg(group, signal.SIGINT)

    words = project.starting
    for act in (cancel, interrupt, interrupt_twice):
        with project.begin(*words) as process:
            _until(project, lambda: _is_coding(project))
            act(process.pid)
            out, errors = process.communicate(timeout=60)
        assert process.returncode == _CANCELLED, (act, out, errors)
        assert not _sleeps(project)
        assert [*processes_below(tmp_path)] == []
        words = ("loop", "resume")
    project.play(parts_of("one"))
    assert project.run("loop", "resume").returncode == 0
    assert project.rows()["one"]["attempt"] == 1
