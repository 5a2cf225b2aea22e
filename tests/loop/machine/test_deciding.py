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
    advice = "mend and commit them, or start another loop with `--baseline record`"
    assert f"1 test fails before the loop starts; {advice}" in refused.stdout
    assert "so that only new failures count: tests.test_old.Test.test_old" in refused.stdout
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
    assert done.returncode == 0, done
    assert project.git("show", f"{project.branch}:check.sh") == CHECK


def _project(root: Path, name: str, **story: Any) -> Project:
    """A repository with a protected file of configuration; the implementor changes it beside its code."""
    code = f"{_RIGHT}; echo '# changed' >> {name}"
    project = Project.make(root, [story_of("one", **story)], instead(case("role: implementor", run=code)))
    (project.work / name).write_text("# configuration\n")
    project.git("add", "--all")
    project.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "configuration")
    return project


@pytest.mark.parametrize(
    ("files", "is_changed"), [([], False), (["setup.cfg", "pieces"], True)], ids=["not", "named"]
)
def test_protected_configuration_changes_only_where_the_story_names_it(
    tmp_path: Path, files: list[str], *, is_changed: bool
):
    """Elsewhere the change is left out, and the story passes without it; roles know beforehand, judges are told."""
    project = _project(tmp_path, "setup.cfg", files=files)
    done = project.start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    assert ("changed" in project.git("show", f"{project.branch}:setup.cfg")) == is_changed
    (committed,) = (each for each in events_of(done) if each["event"] == "code.committed")
    assert committed["left_out"] == ([] if is_changed else ["'setup.cfg' says how checks run"])
    prompts = _prompts(project)
    assert "setup.cfg says how checks run" in prompts["implementor"]
    note = (
        "Protected configuration that the attempt changed"
        if is_changed
        else "Changes of protected files that were left"
    )
    assert note in prompts["judge"]


def _assert_runs_of_rejection(events: _Parts, second: str) -> None:
    """Assert that an attempt was rejected by a second run of its checks, and that the events name both runs."""
    (checked,) = (each for each in events if each["event"] == "checks.completed")
    (failed,) = (each for each in events if each["event"] == "story.failed")
    assert checked["is_green"] is False
    assert checked["checks"].pop(second) == "red"
    assert set(checked["checks"].values()) == {"green"}
    assert len(set(checked["runs"])) == 2
    assert set(checked["runs"]) < set(failed["runs"])


def _prompts(project: Project) -> dict[str, str]:
    lines = [
        json.loads(line)
        for path in (project.root / "state" / "runs").glob("*/journal.jsonl")
        for line in path.read_text().splitlines()
    ]
    asked = [str(line["data"]["prompt"]) for line in lines if line["event"] == "job.created"]
    return {text.splitlines()[0].removeprefix("role: "): text for text in asked if text.startswith("role: ")}


def test_work_that_needs_its_own_configuration_is_rejected(tmp_path: Path):
    """The checks must pass with the configuration as it was, too: else it might be what makes them pass."""
    code = "printf '[pieces]\\nname = one\\n' > setup.cfg; cat > pieces/one.py <<'EOF'\n"
    code += "import configparser\n\n\ndef one():\n    read = configparser.ConfigParser()\n    read.read('setup.cfg')\n"
    code += "    return read['pieces']['name']\nEOF"
    cases = instead(case("role: implementor", run=code))
    project = Project.make(tmp_path, [story_of("one", files=["setup.cfg", "pieces/one.py"])], cases)
    done = project.start("--attempts", "1", "--json")
    assert done.returncode == _INCOMPLETE, done
    assert "with setup.cfg as before the story" in project.rows()["one"]["reason"]
    _assert_runs_of_rejection(events_of(done), "earlier configuration")


def test_an_attempt_that_changes_nothing_but_protected_files_is_rejected(tmp_path: Path):
    """With the files named, and why."""
    cases = instead(case("role: implementor", run="echo > tests/test_old.py; echo > setup.cfg"))
    project = Project.make(tmp_path, [story_of("one")], cases)
    done = project.start("--attempts", "1")
    assert done.returncode == _INCOMPLETE, done
    assert "'tests/test_old.py' is a test or belongs to tests" in project.rows()["one"]["reason"]


def test_a_test_writer_that_writes_no_test_is_told_what_was_dropped(tmp_path: Path):
    """Each dropped change is named with the reason."""
    cases = [case("role: test_writer", run="echo > setup.cfg"), *parts_of("one")[1:]]
    project = Project.make(tmp_path, [story_of("one")], cases)
    done = project.start("--attempts", "1")
    assert done.returncode == _INCOMPLETE, done
    reason = project.rows()["one"]["reason"]
    assert reason == "no test file was written; these changes were dropped: 'setup.cfg' says how checks run"


def test_of_a_test_writers_work_only_tests_are_taken(tmp_path: Path):
    """Tests, their data and their packages; product code, configuration and links are not."""
    writer, *others = parts_of("one")
    test = writer["turns"][0]["tools"][0]["run"]
    more = (
        "mkdir tests/data; echo 1 > tests/data/one.json; echo > tests/conftest.py; echo > setup.cfg\n"
        "ln -s /etc/passwd tests/link; echo > pieces/more.py"
    )
    cases = [case("role: test_writer", run=f"{test}\n{more}"), *others]
    done = Project.make(tmp_path, [story_of("one")], cases).start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    (written,) = (each["files"] for each in events_of(done) if each["event"] == "tests.written")
    assert sorted(written) == ["tests/conftest.py", "tests/data/one.json", "tests/test_one.py"]


def test_a_changed_behaviour_may_take_its_old_test_with_it(tmp_path: Path):
    """The judge sees the removed test and the change; the other tests still have to pass."""
    writer, *others = parts_of("one")
    test = writer["turns"][0]["tools"][0]["run"]
    project = Project.make(
        tmp_path, [story_of("one")], [case("role: test_writer", run=f"{test}\nrm tests/test_old.py"), *others]
    )
    done = project.start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    assert (
        "its test writer removed: see whether the story asks for that: tests.test_old.Test.test_old"
        in _prompts(project)["judge"]
    )


def test_a_storys_tests_are_run_once_more_each_alone(tmp_path: Path):
    """Code that swaps a test while another is run passes the suite, and is rejected with the test's name."""
    code = (
        "cat > pieces/one.py <<'EOF'\nimport sys\n\n\ndef one():\n"
        "    kind = sys._getframe(1).f_globals['Test']\n"
        "    kind.test_z.__code__ = (lambda self: None).__code__\n    return 'one'\nEOF"
    )
    writer, _, *others = parts_of("one", code=code)
    test = writer["turns"][0]["tools"][0]["run"].replace("EOF\n", "EOF\n", 1)
    more = f"{test}\nprintf '\\n    def test_z(self):\\n        self.assertEqual(one() * 2, 1)\\n' >> tests/test_one.py"
    cases = [case("role: test_writer", run=more), case("role: implementor", run=code), *others]
    project = Project.make(tmp_path, [story_of("one")], cases)
    done = project.start("--attempts", "1", "--json")
    assert done.returncode == _INCOMPLETE, done
    _assert_runs_of_rejection(events_of(done), "tests alone")
    reason = project.rows()["one"]["reason"]
    assert ("passes among the other tests and not alone" in reason, "Test.test_z" in reason) == (
        True,
        True,
    ), reason


def test_tests_that_take_too_long_each_alone_are_no_proof(tmp_path: Path):
    """Code that is slow to load passes the suite in time, and is rejected once the time of all single runs is up."""
    code = (
        "printf 'import time\\n\\ntime.sleep(2)\\n\\n\\ndef one():\\n    return \"one\"\\n' > pieces/one.py"
    )
    writer, *others = parts_of("one", code=code)
    test = writer["turns"][0]["tools"][0]["run"]
    many = "".join(
        f'\\n    def test_{number}(self):\\n        self.assertEqual(one(), "one")\\n' for number in range(9)
    )
    cases = [case("role: test_writer", run=f"{test}\nprintf '{many}' >> tests/test_one.py"), *others]
    project = Project.make(tmp_path, [story_of("one")], cases)
    project.configure(checks=[{**_TESTS, "timeout": "5s"}])
    done = project.start("--attempts", "1")
    assert done.returncode == _INCOMPLETE, done
    reason = project.rows()["one"]["reason"]
    assert reason == "the story's own tests, each of them run alone, took longer than 15 s together"
