"""The stories of examples/loop: what the script's roles do to the project really is test first."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import slow_after

from ringfence.loop.role import JUDGE, PLANNER, REVIEWER, check_evidence, is_passed
from ringfence.loop.story import check_plan, plan_from, read_plan
from ringfence.model.scripted import Script, load_script

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "loop"
SCRIPT = load_script(ROOT / "examples" / "loop.script.yaml")
BEFORE = {"S1": (), "S2": ("S1",), "S3": ("S1", "S2"), "S4": ("S1", "S2"), "S5": ("S1", "S2", "S4")}
"""The stories that have passed when one begins."""
PASSES = {"S1": 1, "S2": 2, "S4": 1, "S5": 1}
"""On which attempt."""


def suite(place: Path) -> tuple[int, str]:
    """The exit code and what was printed."""
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def turns_of(*prompt: str) -> Script:
    """What the case says that fits a prompt of these lines."""
    text = "\n".join(prompt) + "\n"
    found = next(
        index for index, case in enumerate(SCRIPT.cases) if all(wanted in text for wanted in case.when)
    )
    return SCRIPT.of_case(found)


def act(place: Path, *prompt: str) -> None:
    """Run the commands of a role, and see that they print what its next turn waits for."""
    printed = ""
    for turn in turns_of(*prompt).turns:
        expected = turn.expect.last_tool_result if turn.expect else None
        assert (expected or "") in printed
        for call in turn.tools:
            assert call.run is not None
            done = subprocess.run(
                ["sh", "-c", call.run],
                cwd=place,
                env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=True,
            )
            printed = done.stdout


def write_tests(place: Path, story: str) -> None:
    """Have the test writer at work."""
    act(place, "role: test_writer", f"story: {story}")


def implement(place: Path, story: str, attempt: int) -> None:
    """Have the implementor at work."""
    act(place, "role: implementor", f"story: {story}", f"attempt: {attempt}")


def contents(place: Path) -> dict[str, bytes]:
    """All files by their path."""
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


@pytest.fixture
def kitty(tmp_path: Path) -> Path:
    """A copy of the project."""
    return shutil.copytree(EXAMPLE, tmp_path / "kitty", ignore=shutil.ignore_patterns("__pycache__"))


def at_the_start_of(story: str, kitty: Path) -> Path:
    """The project with all that passed before."""
    for before in BEFORE[story]:
        write_tests(kitty, before)
        implement(kitty, before, PASSES[before])
    code, printed = suite(kitty)
    assert code == 0, printed
    return kitty


def results(place: Path) -> dict[str, str]:
    """The outcomes of a green suite's tests, by their ids."""
    code = "import unittest\nfor part in unittest.defaultTestLoader.discover('tests', top_level_dir='.'):\n"
    code += " for case in part:\n  for test in case: print(test.id())"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=place, capture_output=True, text=True, timeout=60, check=True
    )
    return dict.fromkeys(done.stdout.split(), "passed")


def said(role: str, story: str, attempt: int) -> str:
    """What a role says at its end."""
    text = turns_of(f"role: {role}", f"story: {story}", f"attempt: {attempt} of 2").turns[-1].text
    assert text is not None
    return text


def test_the_stories_are_those_of_the_script():
    """In their order, fit to be worked on; none depends on the one that is skipped."""
    plan = read_plan(EXAMPLE / "prd.json")
    assert check_plan(plan, has_check=True) == []
    assert plan.notes == ()
    assert [story.id for story in plan.ordered()] == list(BEFORE)
    assert not any("S3" in story.depends_on for story in plan.stories)


def test_the_planner_drafts_the_same_stories():
    """A loop that is begun with a goal works on what the file holds."""
    text = turns_of("role: planner").turns[-1].text
    assert text is not None
    drafted = PLANNER.read(text)
    plan = plan_from(drafted.model_dump(mode="json", exclude={"blocked"}), what="the planner's answer")
    assert plan.stories == read_plan(EXAMPLE / "prd.json").stories


@pytest.mark.parametrize(("story", "attempt"), slow_after(1, [*PASSES.items(), ("S2", 1), ("S3", 2)]))
def test_the_judge_names_evidence_that_is_there(kitty: Path, story: str, attempt: int):
    """Its verdict counts: each criterion once, with lines and tests of the attempt; and it is the one that is meant."""
    write_tests(at_the_start_of(story, kitty), story)
    implement(kitty, story, attempt)

    def line_count(path: str) -> int | None:
        file = kitty / path
        return len(file.read_text().splitlines()) if file.is_file() else None

    REVIEWER.read(said("reviewer", story, attempt))
    verdict = JUDGE.read(said("judge", story, attempt))
    criteria = len(
        next(each.criteria for each in read_plan(EXAMPLE / "prd.json").stories if each.id == story)
    )
    assert check_evidence(verdict, line_count, results(kitty), criteria=criteria) == []
    assert is_passed(verdict) == (PASSES.get(story) == attempt)


@pytest.mark.parametrize("story", slow_after(1, BEFORE))
def test_the_tests_of_a_story_fail_before_its_code(kitty: Path, story: str):
    """They are new files, and all that was green stays so."""
    before = contents(at_the_start_of(story, kitty))
    write_tests(kitty, story)
    new = set(contents(kitty)) - set(before)
    assert len(new) == 1
    assert {name: content for name, content in contents(kitty).items() if name not in new} == before
    code, printed = suite(kitty)
    assert code == 1
    failed = [line for line in printed.splitlines() if line.startswith(("ERROR:", "FAIL:"))]
    assert failed
    assert all(Path(new.copy().pop()).stem in line for line in failed)


@pytest.mark.parametrize(("story", "attempt"), slow_after(1, [*PASSES.items(), ("S2", 1), ("S3", 2)]))
def test_the_code_of_an_attempt_makes_them_pass(kitty: Path, story: str, attempt: int):
    """Without a change to any test: that two of these are rejected is for others to find."""
    write_tests(at_the_start_of(story, kitty), story)
    before = contents(kitty)
    implement(kitty, story, attempt)
    code, printed = suite(kitty)
    assert code == 0, printed
    changed = {name for name, content in contents(kitty).items() if before.get(name) != content}
    assert changed
    assert all(name.startswith("kitty/") for name in changed)


def test_the_first_attempt_of_the_skipped_story_edits_its_test(kitty: Path):
    """The suite alone would let it through."""
    write_tests(at_the_start_of("S3", kitty), "S3")
    before = contents(kitty)
    implement(kitty, "S3", 1)
    assert suite(kitty)[0] == 0
    assert contents(kitty)["tests/test_comma.py"] != before["tests/test_comma.py"]


@pytest.mark.parametrize(
    ("story", "attempt", "code"),
    slow_after(
        1,
        [
            (
                "S2",
                1,
                "from kitty.settling import settle; b = {'A': 1, 'B': -1}; settle(b); assert b['A'] == 1",
            ),
            ("S3", 2, "from kitty.money import parse; assert parse('2.345,60') == 234560"),
        ],
    ),
    ids=["S2 changes what it is given", "S3 knows the amounts of its tests alone"],
)
def test_what_the_judge_objects_to_is_so(kitty: Path, story: str, attempt: int, code: str):
    """A criterion that no test looks at is not met."""
    write_tests(at_the_start_of(story, kitty), story)
    implement(kitty, story, attempt)
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=kitty, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
