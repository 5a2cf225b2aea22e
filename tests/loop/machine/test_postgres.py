"""Loops in a Postgres that they share."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of
from tests.loop.machine.test_dying import dying
from tests.postgres import Cluster, cluster, everything_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_KILLED, _USAGE, _LIMIT, _AWAY, _CONFIGURATION, _CANCELLED = -9, 2, 5, 75, 78, 130
_WORD = "correct-horse-battery"
_EACH_ONCE = ["base", "The piece one: tests", "The piece one"]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres of these tests' own."""
    with cluster() as running:
        yield running


def _project(root: Path, url: str, *names: str) -> Project:
    """A repository whose loops lie in a database; its password comes by a variable."""
    parts = [part for name in names for part in parts_of(name)]
    project = Project.make(root, [story_of(name) for name in names], parts)
    project.environment["LOOPS_WORD"] = _WORD
    server, _, name = url.partition("@/")
    name, _, rest = name.partition("?")
    project.environment["LOOPS_NAME"] = name
    written = f"{server}:${{LOOPS_WORD}}@/${{LOOPS_NAME}}?{rest}"
    project.configure(review=False, engine={"type": "postgres", "url": written})
    return project


def _files_with(folder: Path, word: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def test_a_loop_lies_in_a_postgres_and_leaves_nothing_there(postgres: Cluster, tmp_path: Path):
    """Stories at once; looked at like any other; its password is in no file and no row; `clean --all` clears it."""
    url = postgres.make_database()
    project = _project(tmp_path, url, "one", "two")
    project.play(
        [
            *parts_of("one", code="env; printf 'def one():\\n    return \"one\"\\n' > pieces/one.py"),
            *parts_of("two"),
        ]
    )
    done = project.start("--parallel", "2")
    assert done.returncode == 0, done
    assert sorted(project.subjects()) == sorted([*_EACH_ONCE, "The piece two: tests", "The piece two"])
    assert {row["state"] for row in project.rows().values()} == {"passed"}
    (listed,) = json.loads(project.run("loop", "list", "--json").stdout)["loops"]
    assert listed["state"] == "succeeded"
    rows = everything_in(url)
    assert (listed["id"] in rows, _WORD in rows) == (True, False)
    assert _files_with(tmp_path, _WORD) == []
    cleaned = project.run("loop", "clean", "--all")
    assert (cleaned.returncode, listed["id"] in everything_in(url)) == (0, False), cleaned
    assert json.loads(project.run("loop", "list", "--json").stdout)["loops"] == []


def test_rows_of_a_loop_whose_directory_is_gone_are_collected(postgres: Cluster, tmp_path: Path):
    """Of one that was begun here, and of no other: not while the database is away, and not on a dry run."""
    url = postgres.make_database()
    mine, other = (_project(tmp_path / name, url, "one") for name in ("mine", "other"))
    for project in (mine, other):
        ended = project.start("--max-agent-calls", "1")
        assert ended.returncode == _LIMIT, ended
    (lost,), (kept,) = ([*(each.root / "state" / "loops").glob("2*")] for each in (mine, other))
    assert mine.run("gc").stdout == ""
    shutil.rmtree(lost)
    shutil.rmtree(kept)
    environment, mine.environment = mine.environment, {**mine.environment, "LOOPS_NAME": "elsewhere"}
    led = mine.run("gc")
    assert (led.stdout, f"the rows of loop {lost.name} stay" in led.stderr) == ("", True), led
    mine.environment = environment
    for words, is_there in ((("--dry-run",), True), ((), False)):
        done = mine.run("gc", *words)
        assert (done.returncode, done.stdout.split()) == (0, [lost.name]), done
        assert (lost.name in everything_in(url), kept.name in everything_in(url)) == (is_there, True)
    assert mine.run("gc").stdout == ""


def test_two_loops_in_one_database_know_nothing_of_each_other(postgres: Cluster, tmp_path: Path):
    """One is killed while the other works, of another repository: both come to their ends, each commit once."""
    url = postgres.make_database()
    mine, other = (_project(tmp_path / name, url, "one") for name in ("mine", "other"))
    beside = other.begin(*other.starting)
    killed = mine.start(command=dying("step", 4))
    assert killed.returncode == _KILLED, killed
    out, err = beside.communicate(timeout=180)
    assert beside.returncode == 0, (out, err)
    assert mine.rows()["one"]["state"] == "running"
    ended = mine.run("loop", "resume")
    assert ended.returncode == 0, ended
    assert mine.subjects() == other.subjects() == _EACH_ONCE


def test_a_loop_stays_in_its_database(postgres: Cluster, tmp_path: Path):
    """Cancelled by another process it is gone on with there: by another setting or other variables it is refused."""
    url = postgres.make_database()
    project = _project(tmp_path, url, "one")
    project.play(parts_of("one", code="sleep 600"))
    with project.begin(*project.starting, "--json") as working:
        _see(working, "tests.written")
        assert project.run("loop", "cancel").returncode == 0
        out, err = working.communicate(timeout=180)
    assert working.returncode == _CANCELLED, (out, err)
    told = project.root / "config" / "ringfence" / "ringfence.yaml"
    said = told.read_text()
    project.configure()
    moved = project.run("loop", "resume")
    assert (moved.returncode, "loop.engine says files of its own" in moved.stderr) == (_USAGE, True), moved
    told.write_text(said)
    name = project.environment.pop("LOOPS_NAME")
    unset = project.run("loop", "status")
    assert (unset.returncode, "'LOOPS_NAME' is not set" in unset.stderr) == (_CONFIGURATION, True), unset
    project.environment["LOOPS_NAME"] = "postgres"
    led = project.run("loop", "resume")
    assert (led.returncode, "lead to" in led.stderr, _WORD in led.stderr) == (_USAGE, True, False), led
    project.environment["LOOPS_NAME"] = name
    project.play(parts_of("one"))
    done = project.run("loop", "resume")
    assert (done.returncode, project.subjects()) == (0, _EACH_ONCE), done


def _see(working: "subprocess.Popen[str]", event: str) -> None:
    """Read what a loop with `--json` prints, until it tells of an event."""
    assert working.stdout is not None
    for line in working.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(working.communicate())


def test_a_database_that_is_away_is_told(tmp_path: Path):
    """Before anything is begun: one line without the password, exit code 75, and nothing is left."""
    project = _project(tmp_path, f"postgresql://tests@/loops?host={tmp_path}", "one")
    done = project.start()
    assert (done.returncode, done.stderr.count("\n")) == (_AWAY, 1), done
    assert ("see to it that it runs" in done.stderr, _WORD in done.stderr) == (True, False)
    assert not [*(tmp_path / "state" / "loops").glob("2*")]
    assert project.run("loop", "check", str(project.prd)).returncode == _AWAY


def test_a_plain_password_is_refused(tmp_path: Path):
    """With its place, and without the password."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    project.configure(engine={"type": "postgres", "url": f"postgresql://me:{_WORD}@127.0.0.1:1/loops"})
    done = project.start()
    assert (done.returncode, "ringfence.yaml:1:" in done.stderr) == (_CONFIGURATION, True), done
    assert _WORD not in done.stderr


def test_a_database_that_goes_away_is_waited_for_but_not_for_ever(tmp_path: Path):
    """Away for too long, the work ends with 75 and the next step; away for a while, it goes on in the same process."""
    with cluster() as running:
        project = _project(tmp_path, running.make_database(), "one")
        project.play(parts_of("one", code="sleep 600"))
        words = (*dying("alone", 1), *project.starting, "--json")
        with project.begin(command=words) as working:
            _see(working, "tests.written")
            running.stop()
            out, err = working.communicate(timeout=180)
        assert (working.returncode, "loop resume" in err, _WORD in err) == (_AWAY, True, False), (out, err)
        listed = project.run("loop", "list")
        assert (listed.returncode, "see to it that it runs" in listed.stderr, listed.stdout) == (0, True, "")
        assert project.run("loop", "clean", "--all").returncode == _AWAY
        running.start()
        project.play(parts_of("one"))
        with project.begin("loop", "resume", "--json") as working:
            _see(working, "code.committed")
            running.stop()
            away = project.run("loop", "status")
            running.start()
            out, err = working.communicate(timeout=180)
        assert (working.returncode, project.subjects()) == (0, _EACH_ONCE), (out, err)
        assert (away.returncode, _WORD in away.stderr) == (_AWAY, False), away
