"""Loops whose checks are plain commands, and what is kept of what checks and roles said."""

from pathlib import Path

import pytest
from tests.loop.machine.project import Project, case, events_of, judged, parts_of, reviewed, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

SECRET = "correct-horse-battery-staple"
TEST = "printf 'from pieces.one import one\\nassert one() == \"one\"\\n' > tests/check_one.py"
RUN = 'for file in tests/check_*.py; do PYTHONPATH=. python3 "$file" || exit 1; done'


def test_a_command_of_which_only_the_exit_code_is_known_proves_tests_too(tmp_path: Path):
    """It must be green before the new tests and red with them; tests that it passes at once prove nothing."""
    verdict = judged("").replace('{"test": ""}', '{"file": "pieces/one.py", "line": 1}')
    cases = [
        case("role: test_writer", "attempt: 1 of", run="echo pass > tests/check_one.py"),
        case("role: test_writer", "passes with the new tests", run=TEST),
        *[each for each in parts_of("one") if "role: implementor" in each["when"]],
        case("role: reviewer", say=reviewed()),
        case("role: judge", say=verdict),
    ]
    project = Project.make(tmp_path, [story_of("one")], cases)
    (project.work / "tests" / "check_old.py").write_text("pass\n")
    project.git("add", "--all")
    project.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "checks")
    project.configure(checks=[{"kind": "test", "command": RUN}], tests=["tests/check_*.py"])
    done = project.start("--json")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    (retried,) = [each for each in events_of(done) if each["event"] == "story.retried"]
    assert "prove nothing" in "\n".join(retried["complaints"])
    assert "assert one()" in project.git("show", f"{project.branch}:tests/check_one.py")


def test_no_secret_is_kept_of_what_checks_and_roles_said(tmp_path: Path):
    """What an agent found out and says, or has a test say, is replaced in rows, reports and records."""
    wrong = f"printf 'def one():\\n    return \"{SECRET}\"\\n' > pieces/one.py"
    first = ("attempt: 1 of",)
    cases = [
        case("role: implementor", *first, run=wrong, say=f"I know {SECRET}"),
        case("role: judge", "attempt: 2 of", say=judged("", verdict="not_met").replace("do what", SECRET)),
        *parts_of("one"),
    ]
    project = Project.make(tmp_path, [story_of("one")], cases)
    project.environment["EXAMPLE_API_KEY"] = SECRET
    done = project.start("--json", "--attempts", "3")
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr)
    told = [each for each in events_of(done) if each["event"] == "story.retried"]
    assert ["[redacted]" in "\n".join(each["complaints"]) for each in told] == [True, True]
    state = project.root / "state"
    kept = [
        *state.glob("loops/*/loop.db*"),
        *state.glob("loops/*/report*"),
        *state.glob("loops/*/**/journal.jsonl"),
        *state.glob("runs/*/journal.jsonl"),
    ]
    assert len(kept) > 8
    assert [file for file in kept if SECRET.encode() in file.read_bytes()] == []


def test_what_checks_write_is_not_kept(tmp_path: Path):
    """Caches and reports of runners are changes that nobody applies: only the patches of roles are in the records."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    assert project.start().returncode == 0
    patches = [path.read_text() for path in (project.root / "state" / "runs").glob("*/work.patch")]
    named = [line for patch in patches for line in patch.splitlines() if line.startswith("diff --git")]
    assert sorted(line.rpartition("/")[2] for line in named) == ["one.py", "test_one.py"]
