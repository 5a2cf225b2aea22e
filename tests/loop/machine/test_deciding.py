"""What decides about a story besides its new tests, and who works on which attempt."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.loop.machine.project import CHECK, Project, case, events_of, instead, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_INCOMPLETE, _CONFIGURATION = 3, 78
_RIGHT = "printf 'def one():\\n    return \"one\"\\n' > pieces/one.py"
_Parts = list[dict[str, Any]]
_TESTS = {"kind": "test", "command": CHECK}


def _twice(first: str, second: str, hint: str, **story: Any) -> tuple[_Parts, _Parts]:
    """A story whose second attempt is made by who has read the hint."""
    parts = [each for each in parts_of("one") if "role: implementor" not in each["when"]]
    attempts = [
        case("role: implementor", "attempt: 2 of", hint, run=second),
        case("role: implementor", "attempt: 1 of", run=first),
    ]
    return [story_of("one", **story)], [*attempts, *parts]


def _complaints(events: _Parts) -> list[str]:
    return [str(each["complaints"]) for each in events if each["event"] == "story.retried"]


def test_tests_that_are_red_before_are_noted_or_refused(tmp_path: Path):
    """By `--baseline`: noted, only new failures count; refused, nothing is begun."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    old = project.work / "tests" / "test_old.py"
    old.write_text(old.read_text().replace("pass", "self.fail()"))
    project.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "red")
    refused = project.start("--baseline", "refuse")
    assert refused.returncode == _CONFIGURATION, refused
    assert "1 test fails before anything is done: tests.test_old.Test.test_old" in refused.stdout
    assert f"next: ringfence loop start --prd {project.prd}\n" in refused.stdout
    assert "loop resume" not in refused.stdout
    assert project.rows()["one"]["state"] == "waiting"
    noted = project.start("--baseline", "record")
    assert noted.returncode == 0, noted
    assert "1 test already failing: tests.test_old.Test.test_old" in noted.stdout


def test_a_linter_that_becomes_red_rejects_the_attempt(tmp_path: Path):
    """One that was red before does not."""
    stories, cases = _twice(f"{_RIGHT}; echo '# LATER' >> pieces/one.py", _RIGHT, "LATER")
    project = Project.make(tmp_path, stories, cases)
    lints = [{"kind": "lint", "command": command} for command in ("! grep -rn LATER pieces", "false")]
    project.configure(checks=[_TESTS, *lints])
    done = project.start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    events = events_of(done)
    assert events[0]["red_checks"] == ["lint 3"]
    (told,) = _complaints(events)
    assert "lint 2" in told
    assert project.rows()["one"]["attempt"] == 2


def test_a_storys_own_check_decides_too(tmp_path: Path):
    """Beside its tests, which are green on both attempts; a file that it names may be built, for the story says so."""
    stories, cases = _twice(
        _RIGHT,
        f"{_RIGHT}; touch pieces/one.txt",
        "one.txt",
        check="test -f pieces/one.txt",
        files=["pieces/one.txt"],
    )
    project = Project.make(tmp_path, stories, cases)
    done = project.start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    assert ["check" in each for each in _complaints(events_of(done))] == [True]
    assert "pieces/one.txt" in project.git("ls-tree", "-r", "--name-only", project.branch).splitlines()


def test_a_check_that_takes_too_long_is_red(tmp_path: Path):
    """By `timeout`, and the complaint says so."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    slow = {"kind": "other", "command": "! grep -rq one pieces || sleep 600", "timeout": "3s"}
    project.configure(checks=[_TESTS, slow], attempts=1)
    done = project.start()
    assert done.returncode == _INCOMPLETE, done
    reason = project.rows()["one"]["reason"]
    assert ("other 2" in reason, "3 s" in reason) == (True, True), reason


def test_a_ladder_says_who_works_on_which_attempt(tmp_path: Path):
    """The first step on the first attempt, the last one on all others; the commit says who it was."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    scripts = {name: tmp_path / f"{name}.yaml" for name in ("weak", "strong")}
    parts = {"weak": case(run="touch pieces/other.py"), "strong": case(run=_RIGHT)}
    for name, file in scripts.items():
        file.write_text(json.dumps({"price": {"input": 0, "output": 0}, "turns": parts[name]["turns"]}))
    steps = [{"model": f"scripted:{scripts[name]}"} for name in ("weak", "strong")]
    project.configure(roles={"implementor": {"ladder": steps}})
    done = project.start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    assert project.rows()["one"]["attempt"] == 2
    body = project.git("show", "--no-patch", "--format=%B", project.branch)
    assert f"Model: scripted:{scripts['strong']}" in body
    report = json.loads(project.run("loop", "show", "--json").stdout)["stories"][0]["attempts"]
    models = [
        turn["model"] for attempt in report for turn in attempt["turns"] if turn["role"] == "implementor"
    ]
    assert models == [f"scripted:{file}" for file in scripts.values()]


def test_fields_that_mean_nothing_here_are_shown_to_roles(tmp_path: Path):
    """A text of the stories' file that we know no meaning of is in the prompts of all who work on the story."""
    parts = [{**each, "when": [*each["when"], "\ncolour: blue\n"]} for each in parts_of("one")]
    project = Project.make(tmp_path, [story_of("one", colour="blue")], parts)
    done = project.start()
    assert done.returncode == 0, done


def test_checks_without_a_test_are_named_with_their_place(tmp_path: Path):
    """File and line of `loop.checks`, which is in the user's own file here."""
    project = Project.make(tmp_path, [story_of("one")], [])
    project.configure(checks=[{"kind": "lint", "command": "true"}])
    done = project.start()
    assert done.returncode == _CONFIGURATION, done
    assert "ringfence.yaml:1:" in done.stderr
    assert "add one of kind `test`" in done.stderr


def test_a_script_of_the_loops_own_checks_is_no_storys_work(tmp_path: Path):
    """Whatever its `files` say: it decides about all stories."""
    cases = instead(case("role: implementor", run=f"{_RIGHT}; echo true > check.sh"))
    project = Project.make(tmp_path, [story_of("one", files=["check.sh"])], cases)
    (project.work / "check.sh").write_text(f"{CHECK}\n")
    project.git("add", "--all")
    project.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "check")
    project.configure(checks=[_TESTS, {"kind": "other", "command": "sh check.sh"}], attempts=1)
    done = project.start()
    assert done.returncode == _INCOMPLETE, done
    assert "'check.sh' is changed, but says how tests run" in project.rows()["one"]["reason"]
