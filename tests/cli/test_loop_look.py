"""The commands that look at loops, as a user has them."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cases import slow_after
from tests.cli.conftest import Ended
from tests.loop.report.filling import Filling, story

from ringfence.config.paths import state_dir
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import open_store
from ringfence.loop.story import Story

_OTHERS = ["ringfence loop export FILE --loop abcdef", "ringfence loop start --prd FILE"]
_EVIL = "\x1b[2J\u202e<b>|\r\n"
Run = Callable[..., Ended]


def _fill(*stories: Story, title: str = "Pieces") -> Filling:
    """A loop in this test's state directory: the first story passed, the second was rejected twice and skipped."""

    async def write() -> Filling:
        filling = await Filling(state_dir(), *stories, title=title).begin(source=str(Path.cwd()))
        first, second = (each.id for each in stories[:2])
        await filling.tests(first)
        await filling.code(first, 1)
        await filling.judged(first, 1)
        await filling.passed(first)
        await filling.tests(second)
        for number in (1, 2):
            await filling.code(second, number)
            await filling.judged(second, number, verdict="not_met", reason="it is not")
            await filling.rejected(second, number, "criterion 1 is not met: it is not")
        filling.store.update_story(
            second, state=StoryState.SKIPPED, stage="", reason="criterion 1 is not met"
        )
        await filling.at_fixed_times()
        filling.store.end(LoopState.INCOMPLETE, "1 passed, 1 skipped")
        filling.close()
        return filling

    return anyio.run(write)


_GOLDEN = """\
loop 20260101-000000-abcdef  incomplete: 1 passed, 1 skipped
story  state    attempt  stage       time  tokens  cost   title
one    passed   1/3      verdict ok  3:00  12.9k   $0.25  The piece one
two    skipped  2/3      verdict no  5:00  24.9k   $0.50  The piece two
three  waiting                       -     0       -      The piece three
two: criterion 1 is not met
used: 11 agent calls, 37,800 tokens, $0.75, 8:00 at work
next: ringfence loop retry two --loop abcdef
next: git merge ringfence/loop-20260101-000000-abcdef
"""


def test_status_is_a_table_of_stories(ringfence: Run):
    """With each story's last stage, what it took, and what one may do next."""
    _fill(story("one"), story("two"), story("three"))
    ended = ringfence("loop", "status")
    assert (ended.code, ended.out) == (0, _GOLDEN)


def test_a_story_that_was_given_up_over_its_tests_shows_how_often_they_were_tried(ringfence: Run):
    """There was no attempt at its code: those at its tests are shown, in the table and in the report."""

    async def begin() -> None:
        filling = await Filling(state_dir(), story("one")).begin(source=str(Path.cwd()))
        for number in (1, 2):
            await filling.step("one", f"tests.{number}", role="test_writer", attempt=number)
            await filling.step("one", f"rejected.test_writer.{number}", outcome="rejected", attempt=number)
        filling.store.update_story("one", state=StoryState.SKIPPED, stage="", reason="no tests")
        filling.close()

    anyio.run(begin)
    assert "skipped  2/3      tests no" in ringfence("loop", "status").out
    (told,) = json.loads(ringfence("loop", "status", "--json").out)["stories"]
    assert (told["attempt"], told["tests_attempt"]) == (0, 2)
    assert "| skipped | 2 (tests) |" in ringfence("loop", "show").out


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        (LoopState.INCOMPLETE, ["git merge", *_OTHERS]),
        (LoopState.LIMIT, ["git merge", "ringfence loop cancel abcdef", *_OTHERS]),
        (LoopState.RUNNING, ["ringfence loop cancel abcdef", "ringfence loop start --goal TEXT"]),
        (LoopState.SUCCEEDED, ["git merge"]),
    ],
)
def test_what_needs_the_clones_is_not_offered_without_them(
    ringfence: Run, state: LoopState, offered: list[str]
):
    """After `clean` there is the branch, and another loop; none is gone on with, and no story begun anew."""
    filling = _fill(story("one"), story("two"))
    with open_store(filling.directory) as store:
        store.begin_round()
        if state.is_end:
            store.end(state, "so it was")
    filling.directory.repository_dir.rmdir()
    told = json.loads(ringfence("loop", "status", "--json").out)["next"]
    assert [each.split(" ringfence/loop-")[0] for each in told] == offered
    shown = ringfence("loop", "show").out
    assert "loop retry" not in shown
    assert "loop resume" not in shown
    retried = ringfence("loop", "retry", "two", "--loop", "abcdef")
    assert (retried.code, "as after `ringfence loop rm`" in retried.err) == (2, True)
    resumed = ringfence("loop", "resume", "abcdef")
    assert (resumed.code, "as after `ringfence loop rm`" in resumed.err) == (2, True)
    assert json.loads(ringfence("loop", "status", "--json").out)["next"] == told


def test_a_loop_whose_process_died_says_how_it_is_gone_on_with(ringfence: Run):
    """It is not running, whatever its row says."""

    async def begin() -> None:
        (await Filling(state_dir(), story("one")).begin(source=str(Path.cwd()))).close()

    anyio.run(begin)
    ended = ringfence("loop", "status", "abcdef")
    assert "loop 20260101-000000-abcdef  interrupted" in ended.out
    assert "next: ringfence loop resume abcdef" in ended.out
    assert "interrupted" in ringfence("loop", "ls").out


def test_a_loop_of_another_version_is_refused_in_one_line(ringfence: Run):
    """No line end and no address of a library's documentation are in it."""

    async def begin() -> None:
        configuration = json.dumps({"run": {"no_such_section": 1}, "said": [], "loop": {}})
        (await Filling(state_dir(), story("one")).begin(configuration=configuration)).close()

    anyio.run(begin)
    ended = ringfence("loop", "resume", "abcdef")
    assert ended.code == 1
    assert "no_such_section" in ended.err
    assert "start the loop anew" in ended.err
    assert "\\n" not in ended.err
    assert "http" not in ended.err


def test_watching_a_loop_that_nobody_works_on_ends(ringfence: Run):
    """With the code for what can be tried again, and how."""

    async def begin() -> None:
        (await Filling(state_dir(), story("one")).begin(source=str(Path.cwd()))).close()

    anyio.run(begin)
    ended = ringfence("loop", "logs", "--follow")
    assert ended.code == 75
    assert "resume it with `ringfence loop resume abcdef`" in ended.err


def test_watching_a_loop_that_has_ended_tells_it_all(ringfence: Run):
    """Each event once, then the end; the exit code is the loop's."""
    _fill(story("one"), story("two"))
    ended = ringfence("loop", "logs", "--follow")
    assert (ended.code, ended.out.count("checks green")) == (3, 3)
    assert (
        "loop 20260101-000000-abcdef  incomplete: 1 passed, 1 skipped\n  branch: ringfence/loop-" in ended.out
    )


def test_events_as_json_have_names_numbers_and_a_version(ringfence: Run):
    """One object a line; the last one is the end."""
    _fill(story("one"), story("two"))
    lines = [json.loads(line) for line in ringfence("loop", "logs", "--follow", "--json").out.splitlines()]
    assert {line["schema_version"] for line in lines} == {1}
    assert [line["event"] for line in lines] == [
        "checks.completed", "checks.completed", "story.retried", "checks.completed", "story.retried", "loop.summary",
    ]  # fmt: skip
    assert [line["number"] for line in lines[:-1]] == [1, 2, 3, 4, 5]
    assert (lines[-1]["state"], lines[-1]["exit_code"]) == ("incomplete", 3)


@pytest.mark.parametrize("command", slow_after(1, ["ls", "status", "show"]))
def test_what_reads_has_json_with_a_version(ringfence: Run, command: str):
    """For programs, and for the terminal that shows it: plain ASCII."""
    _fill(story(_EVIL), story("two"), title=_EVIL)
    ended = ringfence("loop", command, "--json")
    assert json.loads(ended.out)["schema_version"] == 1
    assert {letter for letter in ended.out if not 32 <= ord(letter) < 127} == {"\n"}


@pytest.mark.parametrize("command", slow_after(1, ["ls", "status", "show", "logs"]))
def test_hostile_texts_reach_no_terminal(ringfence: Run, command: str):
    """What an agent or a story's file says is spelled out."""
    _fill(story(_EVIL, title=_EVIL, criteria=(_EVIL,)), story("two"), title=_EVIL)
    shown = ringfence("loop", command).out
    assert {letter for letter in shown if not letter.isprintable()} == {"\n"}


def test_the_last_verdict_on_a_story_is_shown_once(ringfence: Run):
    """With the criteria, and not again with the attempt; the verdict on an earlier attempt is with that attempt."""
    _fill(story("one"), story("two"))
    assert ringfence("loop", "show", "--story", "two").out.count("1. **not met**") == 2


def test_a_list_of_no_loops_says_so(ringfence: Run):
    """On stderr; as JSON it is an empty list alone."""
    ended = ringfence("loop", "ls")
    assert (ended.code, ended.out, "no loops yet" in ended.err) == (0, "", True)
    as_json = ringfence("loop", "ls", "--json")
    assert (json.loads(as_json.out)["loops"], as_json.err) == ([], "")


def test_a_database_that_cannot_be_read_hides_no_other_loop(ringfence: Run):
    """It is named on stderr."""
    _fill(story("one"), story("two"))
    broken = state_dir() / "loops" / "20270101-000000-000000"
    broken.mkdir()
    (broken / "loop.db").write_bytes(b"no database" * 1000)
    ended = ringfence("loop", "ls")
    assert (ended.code, "20260101-000000-abcdef" in ended.out) == (0, True)
    assert "20270101-000000-000000" in ended.err


def test_the_page_is_written_whole_or_not(ringfence: Run, tmp_path: Path):
    """In the place of whatever link is there, and not through it."""
    _fill(story("one"), story("two"))
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "page.html").symlink_to(tmp_path / "mine")
    assert ringfence("loop", "show", "--html", tmp_path / "page.html") == Ended(0, "", "")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    ended = ringfence("loop", "show", "--html", tmp_path / "no" / "page.html")
    assert (ended.code, "cannot write" in ended.err) == (2, True)


def test_a_patch_of_a_loop_without_a_repository_is_the_one_that_was_kept(start: Callable[..., Any]):
    """After `clean`, byte by byte."""
    filling = _fill(story("one"), story("two"))
    (filling.directory.path / "loop.patch").write_bytes(b"\xff patch\r\n")
    assert start("loop", "diff").communicate(timeout=60) == (b"\xff patch\r\n", b"")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    slow_after(
        2,
        [
            (["diff", "two"], 2, "story 'two' is skipped: nothing of it is on the branch"),
            (["diff", "none"], 2, "has no story 'none'; it has one, two"),
            (["diff", "--rejected", "1"], 2, "--rejected 1 needs the STORY"),
            (["diff", "two", "--rejected", "9"], 2, "no attempt 9 of story 'two'"),
            (
                ["diff", "one"],
                2,
                "as after `ringfence loop rm`; stories that passed are on the loop's branch",
            ),
            (["status", "zzz"], 2, "no loop named 'zzz'"),
            (["rm", ""], 2, "no loop named ''"),
        ],
    ),
    ids=["skipped", "unknown", "whose", "which", "removed", "no-loop", "nothing"],
)
def test_what_cannot_be_shown_is_said(ringfence: Run, arguments: list[str], code: int, said: str):
    """In one line, with what to do."""
    _fill(story("one"), story("two"))
    ended = ringfence("loop", *arguments)
    assert (ended.code, said in ended.err, ended.err.count("\n")) == (code, True, 1)


def test_an_export_has_the_progress(ringfence: Run, tmp_path: Path):
    """Stories that have not ended stay as they are."""
    _fill(story("one"), story("two"), story("three"))
    ended = ringfence("loop", "export", tmp_path / "out.json")
    assert (ended.code, str(tmp_path / "out.json") in ended.err) == (0, True)
    stories = json.loads((tmp_path / "out.json").read_text())["stories"]
    assert [each["passes"] for each in stories] == [True, False, False]
    assert "criterion 1 is not met" in stories[1]["notes"]


def test_an_export_replaces_only_an_earlier_one(ringfence: Run, tmp_path: Path):
    """A file with other contents is refused, and stays as it is, without --force."""
    _fill(story("one"), story("two"))
    file = tmp_path / "out.json"
    file.write_text("mine\n")
    refused = ringfence("loop", "export", file)
    assert (refused.code, "--force" in refused.err, file.read_text()) == (2, True, "mine\n")
    assert [ringfence("loop", "export", file, *words).code for words in (["--force"], [])] == [0, 0]


@pytest.mark.parametrize("command", ["start", "check"])
def test_the_stories_are_named_once(ringfence: Run, tmp_path: Path, command: str):
    """As the argument or by --prd, and not by both; either is read."""
    file = tmp_path / "prd.json"
    file.write_text("[")
    by_argument, by_option = ringfence("loop", command, file), ringfence("loop", command, "--prd", file)
    assert (by_argument.code, by_option.code, by_argument.err) == (78, 78, by_option.err)
    both, none = ringfence("loop", command, file, "--prd", file), ringfence("loop", command)
    assert (both.code, "give one of them" in both.err) == (2, True)
    assert (none.code, "PRD" in none.err) == (2, True)


def _repository(place: Path, files: dict[str, str]) -> Path:
    place.mkdir()
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    _git(place, "init", "-q", "-b", "main")
    _commit(place)
    return place


def _commit(place: Path) -> str:
    """All that is there; the commit's id."""
    _git(place, "add", ".")
    _git(place, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x")
    return _git(place, "rev-parse", "HEAD")


def _git(place: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=place, check=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdout=subprocess.PIPE, text=True,
    ).stdout.strip()  # fmt: skip


_TEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"


def _prd(place: Path, *stories: dict[str, object]) -> Path:
    place.write_text(json.dumps({"title": "P", "stories": [*stories]}))
    return place


def _free(place: Path) -> tuple[str, str]:
    """The option for a model that needs no credential."""
    (place / "model.yaml").write_text(
        json.dumps({"price": {"input": 0, "output": 0}, "turns": [{"text": "x"}]})
    )
    return "--model", f"scripted:{place / 'model.yaml'}"


def _good(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "title": name, "description": "d", "acceptance_criteria": ["c"], **more}


def test_a_check_of_what_can_be_begun(ringfence: Run, tmp_path: Path):
    """It names stories, repository, checks, budget, and what will not be checked or seen; nothing is made."""
    work = _repository(tmp_path / "work", {"tests/test_a.py": _TEST})
    (work / "new.py").write_text("")
    ended = ringfence(
        "loop",
        "check",
        *_free(tmp_path),
        _prd(tmp_path / "prd.json", _good("a"), _good("b")),
        "--workspace",
        work,
    )
    assert ended.code == 0, ended.err
    for said in (
        "stories: 2", "  - a  a", "  test  python3 -m unittest", "budget: 200 agent calls", "no linter", "new.py",
        "no bound on money", "no problems found",
    ):  # fmt: skip
        assert said in ended.out
    assert not (state_dir() / "loops").exists()


def test_a_check_looks_at_what_the_options_say(ringfence: Run, tmp_path: Path):
    """The same as `loop start` takes: where to begin, who works in which fence, how much it may cost."""
    work = _repository(tmp_path / "work", {"notes.txt": "x"})
    first = _git(work, "rev-parse", "HEAD")
    (work / "tests").mkdir()
    (work / "tests" / "test_a.py").write_text(_TEST)
    _commit(work)
    words = (
        "loop",
        "check",
        *_free(tmp_path),
        _prd(tmp_path / "prd.json", _good("a")),
        "--workspace",
        work,
        "--json",
    )
    assert json.loads(ringfence(*words, "--max-cost-usd", "3").out)["limits"]["cost_usd"] == 3
    said = json.loads(ringfence(*words, "--base", first).out)
    assert (said["base"], said["checks"]) == (first, [])
    checks, story_alone = (each["message"] for each in said["problems"])
    assert ("no way to run tests" in checks, "'a'" in story_alone) == (True, True)
    unbounded = ringfence(*words, "--max-cost-usd", "0")
    assert (unbounded.code, "--max-cost-usd: 0 is out of range" in unbounded.err) == (2, True)
    misspelled = ringfence(*words, "--sandbox", "none")
    assert (misspelled.code, "--sandbox: 'none' is not one of" in misspelled.err) == (2, True)
    unread = ringfence(*words, "--role", f"judge=:scripted:{tmp_path}/none.yaml")
    assert (unread.code, "none.yaml: cannot read the script" in unread.out) == (78, True), unread
    misused = ringfence(*words, "--role", "judge=nobody")
    assert (misused.code, "nobody" in misused.err, misused.out) == (2, True, "")


def test_a_check_tells_everything_at_once(ringfence: Run, tmp_path: Path):
    """What is wrong with the stories, their file and their repository; the exit code is that of a wrong file."""
    prd = _prd(
        tmp_path / "prd.json",
        _good("a", depends_on=["b"]),
        _good("a"),
        {"id": "c", "title": "", "description": 3},
    )
    (tmp_path / "plain").mkdir()
    ended = ringfence("loop", "check", *_free(tmp_path), prd, "--workspace", tmp_path / "plain")
    assert ended.code == 78
    lines = ended.err.splitlines()
    assert sum("prd.json:" in line for line in lines) >= 3
    assert any("plain" in line and "git" in line for line in lines)
    assert f"{len(lines)} problems" in ended.out


def test_a_check_without_a_way_to_run_tests_says_what_to_configure(ringfence: Run, tmp_path: Path):
    """Before any agent starts."""
    work = _repository(tmp_path / "work", {"notes.txt": "x"})
    ended = ringfence(
        "loop",
        "check",
        *_free(tmp_path),
        _prd(tmp_path / "prd.json", _good("a")),
        "--workspace",
        work,
        "--json",
    )
    found = json.loads(ended.out)
    assert (ended.code, found["is_ready"], found["checks"]) == (78, False, [])
    assert "no way to run tests was found" in found["problems"][0]["message"]


@pytest.mark.parametrize("name", ["prd.json", "prd.yaml"])
def test_a_check_of_an_empty_file_says_that_it_is_empty(ringfence: Run, tmp_path: Path, name: str):
    """With its place; no list of protected files stands before it, as no check is known."""
    work = _repository(tmp_path / "work", {"tests/test_a.py": _TEST})
    (tmp_path / name).write_text("\n")
    ended = ringfence("loop", "check", *_free(tmp_path), tmp_path / name, "--workspace", work)
    assert (ended.code, f"{name}:1:1: the file is empty; write" in ended.err) == (78, True), ended
    assert "protected" not in ended.out


def test_a_check_of_stories_that_are_wrong_says_nothing_of_what_they_may_say(ringfence: Run, tmp_path: Path):
    """How tests are run may stand in the very file."""
    work = _repository(tmp_path / "work", {"notes.txt": "x"})
    prd = tmp_path / "prd.json"
    prd.write_text('{"test_command": "make test", "stories": [{"id": "a"}]}')
    ended = ringfence("loop", "check", *_free(tmp_path), prd, "--workspace", work)
    assert (ended.code, "no way to run tests" in ended.err, "prd.json:" in ended.err) == (78, False, True)


def test_a_check_without_a_credential_ends_as_the_start_would(ringfence: Run, tmp_path: Path):
    """With 77; the way without one is an option that the command has."""
    work = _repository(tmp_path / "work", {"tests/test_a.py": _TEST})
    ended = ringfence("loop", "check", _prd(tmp_path / "prd.json", _good("a")), "--workspace", work)
    assert (ended.code, "there is no credential for the model" in ended.err) == (77, True), ended
    assert "; `--model scripted:FILE` needs none" in ended.err


def test_a_check_knows_that_a_merge_needs_a_branch(ringfence: Run, tmp_path: Path):
    """`--merge` on a HEAD that is on no branch, as `loop start` refuses it."""
    work = _repository(tmp_path / "work", {"tests/test_a.py": _TEST})
    words = (
        "loop",
        "check",
        *_free(tmp_path),
        _prd(tmp_path / "prd.json", _good("a")),
        "--workspace",
        work,
        "--merge",
    )
    assert ringfence(*words).code == 0
    _git(work, "checkout", "-q", "--detach")
    ended = ringfence(*words)
    assert (ended.code, "has no branch to move" in ended.err) == (2, True), ended


def test_without_an_id_a_command_means_a_loop_of_this_repository(
    ringfence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where there is none, it says so and how to name another; the loop of another repository is not shown instead."""
    work = _repository(tmp_path / "work", {"a": "x"})
    _fill(story("one"), story("two"))
    monkeypatch.chdir(work)
    for command in ("status", "show", "logs", "diff"):
        ended = ringfence("loop", command)
        assert (ended.code, ended.out) == (2, ""), ended
        assert f"no loop was started on {str(work)!r}; name the id" in ended.err
        assert "`--loop ID`" in ended.err
    ended = ringfence("loop", "status", "abcdef")
    assert (ended.code, "\nrepository: " in ended.out) == (0, True), ended
    by_story = ringfence("loop", "show", "one")
    assert (by_story.code, "`ringfence loop show ID --story STORY`" in by_story.err) == (2, True), by_story


def test_a_check_of_a_place_that_is_no_repository_is_a_misuse(ringfence: Run, tmp_path: Path):
    """The stories are fine; the code is that of the wrong words."""
    (tmp_path / "plain").mkdir()
    ended = ringfence(
        "loop",
        "check",
        *_free(tmp_path),
        _prd(tmp_path / "prd.json", _good("a")),
        "--workspace",
        tmp_path / "plain",
    )
    assert ended.code == 2


def test_a_check_knows_of_a_loop_that_has_not_ended(ringfence: Run, tmp_path: Path):
    """A second one would be refused."""
    work = _repository(tmp_path / "work", {"tests/test_a.py": _TEST})

    async def begin() -> None:
        (await Filling(state_dir(), story("one")).begin(source=str(work.resolve()))).close()

    anyio.run(begin)
    ended = ringfence(
        "loop", "check", *_free(tmp_path), _prd(tmp_path / "prd.json", _good("a")), "--workspace", work
    )
    assert (ended.code, "has not come to its end (interrupted)" in ended.err) == (2, True)


def test_files_that_the_setup_names_are_protected(
    ringfence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is installed from them runs the checks."""
    monkeypatch.setenv("RINGFENCE_SANDBOX__SETUP", json.dumps(["pip install -r needs.txt"]))
    files = {"tests/test_a.py": _TEST, "needs.txt": "pytest\n", "notes.txt": "none\n"}
    work = _repository(tmp_path / "work", files)
    prd = _prd(tmp_path / "prd.json", _good("a"))
    ended = ringfence("loop", "check", *_free(tmp_path), prd, "--workspace", work)
    shown = ended.out + ended.err
    assert ("needs.txt is" in shown, "notes.txt is" in shown) == (True, False)
