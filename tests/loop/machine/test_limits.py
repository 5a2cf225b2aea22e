"""Bounds of a loop, each with its exit code, and how it goes on with a higher one."""

from pathlib import Path

import pytest
from tests.loop.machine.project import Project, case, instead, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_LIMIT, _TIMED_OUT = 5, 124


def test_each_bound_ends_the_loop_and_a_higher_one_lets_it_go_on(tmp_path: Path):
    """Calls, money, tokens, time: each says which option to raise, and none spends an attempt."""
    project = Project.make(tmp_path, [story_of("one")], [])
    hangs = case("role: implementor", run="sleep 600")
    project.play(instead(hangs), price=1)
    done = project.start("--max-agent-calls", "1", "--max-cost-usd", "1000000")
    assert (done.returncode, "raise --max-agent-calls" in done.stdout) == (_LIMIT, True), done
    done = project.run("loop", "resume", "--max-agent-calls", "50", "--max-cost-usd", "0.000001")
    assert (done.returncode, "raise --max-cost-usd" in done.stdout) == (_LIMIT, True), done
    done = project.run("loop", "resume", "--max-cost-usd", "1000000", "--max-tokens", "1")
    assert (done.returncode, "raise --max-tokens" in done.stdout) == (_LIMIT, True), done
    done = project.run("loop", "resume", "--max-tokens", "40000000", "--timeout", "5s")
    assert (done.returncode, "raise --timeout" in done.stdout) == (_TIMED_OUT, True), done
    assert project.rows()["one"]["state"] == "waiting"
    second = project.start()
    assert (second.returncode, "has not come to its end (timed_out)" in second.stderr) == (2, True), second
    project.play(parts_of("one"))
    done = project.run("loop", "resume", "--timeout", "1h")
    assert done.returncode == 0, done
    assert project.rows()["one"]["attempt"] == 1


def test_a_loop_whose_last_story_uses_up_the_agent_calls_succeeds(tmp_path: Path):
    """A limit refuses further calls; none is needed to merge and deliver what passed."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    done = project.start("--attempts", "1", "--max-agent-calls", "4")
    assert done.returncode == 0, done
    assert project.rows()["one"]["state"] == "passed"
    assert "used: 4 agent calls" in project.run("loop", "status").stdout


def test_an_answer_that_is_cut_at_the_loops_bound_ends_the_loop(tmp_path: Path):
    """What it cost is counted, so that no other attempt is paid for."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    done = project.start("--max-tokens", "10")
    assert (done.returncode, "raise --max-tokens" in done.stdout) == (_LIMIT, True), done
    assert project.rows()["one"]["state"] == "waiting"
    assert "used: 1 agent calls, 0 tokens" not in project.run("loop", "status").stdout
    done = project.run("loop", "resume", "--max-tokens", "40000000")
    assert done.returncode == 0, done


def test_no_progress_ends_the_loop_and_is_counted_anew(tmp_path: Path):
    """The same complaint again and again, though attempts are left; a resumed loop has as many tries again."""
    nothing = [case("role: test_writer")]
    project = Project.make(tmp_path, [story_of("one")], nothing)
    project.configure(attempts=20, limits={"no_progress": 2})
    done = project.start()
    assert (done.returncode, "no progress: the last 2 attempts" in done.stdout) == (_LIMIT, True), done
    project.play([case("role: test_writer", "attempt: 3 of"), *parts_of("one")])
    done = project.run("loop", "resume")
    assert done.returncode == 0, done
    assert project.run("loop", "cancel").returncode == 2  # has ended: nothing is cancelled
    assert project.rows()["one"]["state"] == "passed"


def test_a_loop_that_ended_at_a_bound_can_be_given_up(tmp_path: Path):
    """Then another is begun."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    assert project.start("--max-agent-calls", "1").returncode == _LIMIT
    assert project.run("loop", "cancel").returncode == 0
    done = project.start("--max-agent-calls", "1")
    assert done.returncode == _LIMIT, done
