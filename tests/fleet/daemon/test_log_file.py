"""The size limit of the log of a daemon in the background."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from tests.fleet.fleet_files import FleetFiles

from ringfence.cli.fleet.log import Log
from ringfence.fleet.daemon.log_file import LIMIT_BYTES, older_file, open_log, truncate_log


@contextmanager
def _kept(log: Path, descriptor: int, told: list[str]) -> Iterator[None]:
    """Limit the log to 1,000 bytes while the context lasts."""

    def record(line: str, /, **_fields: object) -> None:
        told.append(line)

    keep = partial(truncate_log, log, record, descriptor=descriptor, limit_bytes=1000, check_s=0.01)
    with start_blocking_portal() as portal:
        keeping = portal.start_task_soon(keep)
        try:
            yield
        finally:
            keeping.cancel()


def _comes(is_it: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_it():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_too_long_is_moved_and_who_has_it_open_goes_on(tmp_path: Path):
    """Older lines move to a second file; a process that inherited the log still writes to the current one."""
    log = tmp_path / "daemon.log"
    descriptor = open_log(log)
    crashing = "import sys\nsys.stdin.read(1)\nraise RuntimeError('the last word')"
    with subprocess.Popen(
        [sys.executable, "-c", crashing], stdin=subprocess.PIPE, stderr=descriptor
    ) as child:
        os.write(descriptor, b"an old line\n" * 100)
        with _kept(log, descriptor, []):
            _comes(older_file(log).exists)
            _comes(lambda: log.stat().st_size == 0)
        os.write(descriptor, b"a new line\n")
        child.communicate(b"\n", timeout=60)
    os.close(descriptor)
    assert older_file(log).read_bytes() == b"an old line\n" * 100
    first, *_, last = log.read_text().splitlines()
    assert (first, last) == ("a new line", "RuntimeError: the last word")
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_one_older_log_is_kept(tmp_path: Path):
    """However often the log reaches its limit, there are two files; the older one holds what was moved last."""
    log = tmp_path / "daemon.log"
    descriptor = open_log(log)
    with _kept(log, descriptor, []):
        for number in range(3):
            os.write(descriptor, b"%d" % number * 1001)
            _comes(lambda: log.stat().st_size == 0)
    os.close(descriptor)
    assert older_file(log).read_bytes() == b"2" * 1001
    assert sorted(file.name for file in tmp_path.iterdir()) == ["daemon.log", "daemon.log.1"]


def test_the_bound_holds_though_nothing_can_be_kept(tmp_path: Path):
    """Lines that cannot be moved are lost, which is reported; a log that was unlinked is limited, too."""
    log = tmp_path / "daemon.log"
    descriptor = open_log(log)
    older_file(log).mkdir()
    told: list[str] = []
    with _kept(log, descriptor, told):
        os.write(descriptor, b"x" * 1001)
        _comes(lambda: len(told) == 1)
        log.unlink()
        os.write(descriptor, b"x" * 1001)
        _comes(lambda: len(told) == 2)
        _comes(lambda: os.fstat(descriptor).st_size == 0)
    os.close(descriptor)
    assert told == ["the older lines of the log are lost: Is a directory"] * 2


def test_somebody_elses_file_is_left_alone(tmp_path: Path):
    """A file other than the log that stderr is redirected to is never cut."""
    other = tmp_path / "other"
    descriptor = open_log(other)
    os.write(descriptor, b"x" * 2000)
    ours = tmp_path / "daemon.log"
    anyio.run(partial(truncate_log, ours, Log("text"), descriptor=descriptor, limit_bytes=1000))
    os.close(descriptor)
    assert other.stat().st_size == 2000


@pytest.mark.slow
def test_a_daemons_log_is_bounded_and_outlives_it(crew: FleetFiles):
    """Daemon and workers keep writing to a log that was cut; the next daemon appends to it."""
    crew.write(
        fleet={"drain": "1s"},
        run={"model": crew.script("quick", {"text": "done"})},
        agents={"a": {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}},
    )
    crew.up()
    log = crew.state / "fleet" / "daemon.log"
    with log.open("ab") as file:
        file.write(b"a line\n" * (LIMIT_BYTES // 7 + 1))
    crew.waits(lambda: log.stat().st_size, lambda size: size < LIMIT_BYTES)
    job = crew.trigger("a")
    crew.ends(job)
    crew.kill(crew.status()["workers"][0])
    said = crew.waits(lambda: crew.log, lambda found: "a worker ended with code -9" in found)
    assert f"job {job}: " in said
    assert "\0" not in said
    crew.kill(crew.status()["pid"])
    crew.up()
    assert crew.log.startswith(said)
    assert older_file(log).stat().st_size > LIMIT_BYTES
