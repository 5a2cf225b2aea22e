"""`ringfence gc` with and without a daemon: one fleet, whose state is restored for each test."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles

from ringfence.removal import remove_tree

pytestmark = pytest.mark.slow
ALL = ("gc", "--older-than", "1ms", "--keep", "0")


def _write(crew: FleetFiles, *, workers: int = 0, **retention: object) -> None:
    crew.write(
        fleet={"name": "c", "drain": "1s", "workers": workers, "retention": retention},
        run={"model": crew.script("quick", {"text": "done"})},
        agents={"a": {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}},
    )


def _copy(crew: FleetFiles, source: str, target: str) -> None:
    subprocess.run(["cp", "-a", crew.home / source, crew.home / target], check=True)


@pytest.fixture(scope="module")
def ended(make_crew: Make) -> tuple[FleetFiles, list[Any]]:
    """A stopped fleet in which two jobs have ended, and these jobs, the older first."""
    crew = make_crew()
    _write(crew, workers=1)
    crew.up()
    jobs = [crew.ends(crew.trigger("a")) for _ in range(2)]
    crew.does("fleet", "down")
    _copy(crew, "s", "kept")
    return crew, jobs


@pytest.fixture
def jobs(ended: tuple[FleetFiles, list[Any]]) -> Iterator[list[Any]]:
    """The two jobs; the state is restored after the test."""
    crew, found = ended
    yield found
    crew.down()
    remove_tree(crew.home / "s")
    _copy(crew, "kept", "s")


@pytest.fixture
def crew(ended: tuple[FleetFiles, list[Any]]) -> FleetFiles:
    """The fleet."""
    return ended[0]


def _runs(crew: FleetFiles) -> set[str]:
    return {path.name for path in (crew.state / "runs").iterdir()}


@pytest.mark.parametrize("is_up", [True, False], ids=["daemon", "no daemon"])
def test_jobs_go_by_the_crews_retention(crew: FleetFiles, jobs: list[Any], is_up: bool):
    """A dry run names the jobs that retention removes; `gc` removes them and their records, even without a daemon."""
    older, newer = jobs
    _write(crew, count=1)
    if is_up:
        crew.up()
    told = crew.does("gc", "--dry-run")
    assert (told.out.split(), _runs(crew)) == ([older["id"]], {older["run_id"], newer["run_id"]})
    program = crew.does("gc", "--dry-run", "--json").json
    assert (program["is_dry_run"], program["jobs"], program["records"], program["runs"]) == (
        True,
        [older["id"]],
        1,
        [],
    )
    assert program["size_bytes"] > 0
    done = crew.does("gc")
    assert (done.out.split(), _runs(crew)) == ([older["id"]], {newer["run_id"]})
    assert "forgot 1 job with 1 record" in done.err
    if not is_up:
        crew.up()
    assert [job["id"] for job in crew.jobs()] == [newer["id"]]


def test_records_of_jobs_go_with_these_only(crew: FleetFiles, jobs: list[Any]):
    """Records of a fleet's jobs stay for as long as the jobs do, whatever their age; other runs are removed."""
    _write(crew, age=None)
    theirs = _runs(crew)
    assert theirs == {job["run_id"] for job in jobs}
    crew.does("exec", "--", "true")
    (other,) = _runs(crew) - theirs
    done = crew.does(*ALL, "--json").json
    assert (done["is_dry_run"], done["jobs"], done["runs"], _runs(crew)) == (False, [], [other], theirs)


def test_a_daemon_that_was_killed_is_none(crew: FleetFiles, jobs: list[Any]):
    """After a daemon was killed, whose socket still exists, `gc` does the work itself."""
    _write(crew, count=1)
    crew.up()
    crew.kill(crew.status()["pid"])
    assert crew.does("gc").out.split() == [jobs[0]["id"]]


@pytest.mark.usefixtures("jobs")
def test_who_cannot_ask_the_crew_removes_nothing(crew: FleetFiles):
    """If the fleet's file is invalid, `gc` cannot know which records its jobs need, and removes none."""
    _write(crew, age=None)
    before = _runs(crew)
    crew.file.write_text("fleet: {retention: {aeg: 1d}}")
    ended = crew.run(*ALL)
    assert (ended.code, _runs(crew)) == (78, before)
    assert "aeg" in ended.err
