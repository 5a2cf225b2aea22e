"""What a report says of a loop, and that it says it whatever agents wrote."""

import json
import shlex
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tests.loop.report.filling import COMMIT, Filling, story
from tests.loop.report.sample import PATCH
from tests.loop.report.test_page import read, style_digest
from tests.loop.repository.conftest import commit_everything, run_git

from ringfence.errors import UsageError
from ringfence.loop.report import LoopReport, build_report
from ringfence.loop.report.build import stages
from ringfence.loop.report.diff import MAX_LINES, rejected_patch, story_patch
from ringfence.loop.report.html import render_html
from ringfence.loop.report.markdown import render_markdown
from ringfence.loop.report.model import Usage
from ringfence.loop.report.text import next_steps
from ringfence.loop.repository import LoopRepository, inspect_repository
from ringfence.loop.state import LoopState, StoryState

pytestmark = pytest.mark.anyio
_EVIL = (
    "</code></pre><script>alert(1)</script><img src=x onerror=y> [a](http://evil.example) ![p](//evil.example/p) "
    "http://evil.example www.evil.example a@evil.example \x1b]8;;http://evil.example\x1b\\click\x1b[2J \u202e `` ``` "
    "| # -"
)
_LINES = f"{_EVIL}\n```\n# heading\n- list\n| a | b |\n<details open>\r\n"

_PATCH = f"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+{_EVIL}\n"


@pytest.fixture
async def filling(tmp_path: Path) -> AsyncIterator[Filling]:
    """A loop of three stories that nobody has begun."""
    made = await Filling(tmp_path, story("one"), story("two", depends_on=("one",)), story("three")).begin()
    yield made
    made.close()


async def _report(filling: Filling) -> LoopReport:
    return await build_report(filling.directory, filling.store, None, filling.plan)


async def _hostile(state: Path) -> Filling:
    """A loop in which every text that anybody but us wrote is hostile."""
    ids = (_EVIL, "two")
    stories = [story(name, title=_EVIL, description=_EVIL, criteria=(_EVIL,)) for name in ids]
    filling = await Filling(state, *stories, title=_EVIL).begin(reason=_EVIL, source=f"/{_EVIL}")
    for name in ids:
        await filling.tests(name, said=_LINES)
        await filling.code(name, 1, said=_LINES, files=(_EVIL, "\udc80"))
        evidence = [{"test": _EVIL}, {"file": _EVIL, "line": 1}]
        await filling.judged(name, 1, words=_LINES, reason=_LINES, evidence=evidence, verdict="not_met")
        patch = state / f"{name[:1]}\x1b.patch"
        patch.write_text(_PATCH)
        await filling.rejected(name, 1, _LINES, _EVIL, patch=str(patch))
        filling.store.update_story(name, state=StoryState.BLOCKED, reason=_LINES, answer=_LINES)
    filling.store.add_event(
        "s", "loop.started", base=_EVIL, stories=2, red=[_EVIL], red_count=1, red_checks=[_EVIL]
    )
    return filling


async def test_the_page_of_hostile_texts_has_no_script_and_no_link_but_to_its_own_parts(tmp_path: Path):
    """No attribute is theirs, and whatever came through all the same could not run, load or send anything."""
    filling = await _hostile(tmp_path)
    text = render_html(await _report(filling))
    filling.close()
    found = read(text)
    tags = [tag for tag, _ in found.tags]
    assert not {"script", "img", "iframe", "form", "input", "link", "object", "comment", "base"} & {*tags}
    assert tags.count("style") == 1
    names = {name for _, attributes in found.tags for name in attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "open"}
    links = [attributes["href"] for _, attributes in found.tags if "href" in attributes]
    assert links == ["#story-1", "#story-2", "#d1-1-L1", "#d2-1-L1"]
    ids = {attributes.get("id") for _, attributes in found.tags}
    assert {str(link).removeprefix("#") for link in links} <= ids
    (policy,) = (each["content"] for tag, each in found.tags if each.get("http-equiv"))
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{style_digest(text)}'; base-uri 'none'; form-action 'none'"
    )
    assert "alert(1)" in "".join(found.texts)


async def test_no_report_of_hostile_texts_reaches_a_terminal(tmp_path: Path):
    """What moves a cursor or turns the direction of writing is spelled out, in both forms."""
    filling = await _hostile(tmp_path)
    report = await _report(filling)
    filling.close()
    for text in (render_markdown(report), render_html(report)):
        assert {letter for letter in text if not letter.isprintable()} <= {"\n"}
        assert "\\x1b]8;;" in text


async def test_markdown_of_hostile_texts_has_no_link_picture_or_markup(tmp_path: Path):
    """Not even where addresses are made links of."""
    filling = await _hostile(tmp_path)
    tokens = MarkdownIt("gfm-like").parse(render_markdown(await _report(filling)))
    filling.close()
    found = {each.type for token in tokens for each in (token, *(token.children or ()))}
    assert not found & {"link_open", "image", "html_inline", "html_block", "hr"}
    assert sum(token.type == "heading_open" for token in tokens) == 1 + 2 + 4
    assert sum(token.type == "table_open" for token in tokens) == 1


async def test_the_verdict_on_another_attempt_is_not_that_of_the_current_one(filling: Filling):
    """As where a person accepts an attempt that was never judged: its criteria are `not judged`."""
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.rejected("one", 1, "unittest: 1 test fails")
    await filling.code("one", 2)
    await filling.judged("one", 2)
    await filling.rejected("one", 2, "criterion 1 is not met: it is not")
    await filling.passed("one")
    filling.store.update_story("one", attempt=1)
    report = await _report(filling)
    assert [each.verdict for each in report.stories[0].criteria] == [None]
    assert "1. **not judged**: one is there" in render_markdown(report)
    filling.store.update_story("one", attempt=2)
    assert [each.verdict for each in (await _report(filling)).stories[0].criteria] == ["met"]
    filling.store.update_story("one", generation=2, attempt=0)
    assert [each.verdict for each in (await _report(filling)).stories[0].criteria] == [None]


async def test_a_report_tells_attempts_with_their_complaints_runs_and_verdicts(filling: Filling):
    """A story that was rejected once and then accepted."""
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.judged("one", 1, verdict="not_met", reason="it is not")
    await filling.rejected("one", 1, "criterion 1 is not met: it is not", patch="/p/1.patch")
    await filling.code("one", 2)
    await filling.judged("one", 2)
    await filling.passed("one")
    found = (await _report(filling)).stories[0]
    assert [(each.kind, each.number, each.state) for each in found.attempts] == [
        ("tests", 1, "accepted"), ("code", 1, "rejected"), ("code", 2, "accepted"),
    ]  # fmt: skip
    first, second = found.attempts[1:]
    assert (first.complaints, first.patch) == (("criterion 1 is not met: it is not",), "/p/1.patch")
    assert [turn.run_id for turn in second.turns] == [
        "run-code.2",
        "run-checks.2",
        "run-review.2",
        "run-judgement.2",
    ]
    assert (second.checks[0].colour, second.checks[0].words) == ("green", "3 passed")
    assert tuple(map(str, found.criteria[0].evidence)) == ("tests.test_it.Test.test_it", "it.py:3")
    assert (found.criteria[0].verdict, first.verdict[0].verdict) == ("met", "not_met")
    assert (found.used.calls, found.used.tokens, found.used.cost_usd) == (7, 24_900, 0.5)


async def test_rejected_work_is_shown_with_the_line_that_evidence_names(filling: Filling, tmp_path: Path):
    """From its patch, in every form of the report."""
    file = tmp_path / "1.patch"
    file.write_bytes(PATCH)
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.judged(
        "one", 1, verdict="unclear", evidence=[{"file": "./calc.py", "line": 4}, {"test": "t"}]
    )
    await filling.rejected("one", 1, "criterion 1 is unclear", patch=str(file))
    report = await _report(filling)
    attempt = report.stories[0].attempts[-1]
    assert attempt.stat is not None
    assert [(each.path, each.insertions) for each in attempt.stat.files] == [
        ("calc.py", 5), ("tests/test_calc.py", 6), ("logo.png", 0),
    ]  # fmt: skip
    assert "- evidence: `./calc.py:4`: `return a + b`" in render_markdown(report)
    found = read(render_html(report))
    assert ("a", {"href": "#d1-1-L4"}) in found.tags
    assert ("a", {"id": "d1-1-L4", "href": "#d1-1-L4"}) in found.tags
    file.unlink()
    assert (await _report(filling)).stories[0].attempts[-1].stat is None


@pytest.mark.parametrize(
    ("names", "lines", "shown"),
    [("a", 3, 3), ("a", 5_000, MAX_LINES - 1), ("ab", 700_000, 0)],
    ids=["all", "some", "none"],
)
async def test_a_story_on_the_branch_is_shown_as_git_has_it(
    filling: Filling, tmp_path: Path, names: str, lines: int, shown: int
):
    """Its numbers are git's however long it is; what is not shown is said to be in the whole patch."""
    user = tmp_path / "user"
    user.mkdir()
    run_git(user, "init", "-q")
    commits = []
    for text in ("first\n", "first\na line\n", "first\n" + "a line\n" * lines):
        for name in names:
            (user / name).write_text(text)
        commits.append(commit_everything(user))
    base, _, tip = commits
    repository = await LoopRepository.make(
        await inspect_repository(user), filling.directory.repository_dir, loop=filling.directory.id
    )
    filling.store.update_story("one", state=StoryState.PASSED, base=base, code_commit=tip, merged_commit=tip)
    (filling.directory.path / "loop.patch").write_text("all of it")
    report = await build_report(filling.directory, filling.store, repository, filling.plan)
    stat = report.stories[0].stat
    assert stat is not None
    assert [(file.path, file.insertions) for file in stat.files] == [(name, lines) for name in names]
    added = [line for hunk in stat.files[0].hunks for line in hunk.lines if line.startswith("+")]
    assert len(added) == shown
    is_named = f"the whole patch: <code><bdi>{report.patch}</bdi>" in render_html(report)
    assert is_named == (shown < lines)


async def test_a_story_that_a_person_accepted_names_the_person(filling: Filling):
    """In each form of the report, so that nobody takes it for one that the judge accepted."""
    accepted = {"commit": COMMIT, "by": "ana"}
    words = "accepted by a person (ana)"
    await filling.step("one", "accepted", outcome="accepted", run_id=None, result=accepted)
    await filling.passed("one", reason=words)
    report = await _report(filling)
    assert [each.reason for each in report.stories] == [words, "", ""]
    assert f"Reason: {words}" in render_markdown(report)
    assert words in read(render_html(report)).texts


async def test_one_story_is_shown_with_its_lines_and_those_that_evidence_names(
    filling: Filling, tmp_path: Path
):
    """Without the other stories; a line that a criterion rests on has the criterion's number in front."""
    file = tmp_path / "1.patch"
    file.write_bytes(PATCH)
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.judged("one", 1, verdict="unclear", evidence=[{"file": "calc.py", "line": 4}])
    await filling.rejected("one", 1, "criterion 1 is unclear", patch=str(file))
    report = await _report(filling)
    text = render_markdown(report, story="one")
    assert "1 >     4 +    return a + b" in text
    assert "        3 +def add(a, b):" in text
    assert "The piece two" not in text
    page = read(render_html(report, story="one"))
    assert "criterion 1" in page.texts
    assert "The piece two" not in page.texts
    with pytest.raises(UsageError, match="has no story 'four'; it has one, two, three"):
        render_markdown(report, story="four")


async def test_what_was_left_out_of_an_attempt_is_named(filling: Filling):
    """And the configuration that it changed."""
    left_out = ["'go.mod' says how checks run"]
    await filling.step("one", "code.1", role="implementor", attempt=1)
    made = {"commit": COMMIT, "files": ["a"], "left_out": left_out, "configuration": ["Makefile"]}
    await filling.step("one", "code.1.commit", outcome="committed", run_id=None, result=made)
    report = await _report(filling)
    text = render_markdown(report)
    assert "- left out: `'go.mod' says how checks run`" in text
    assert "- changed the configuration of checks: `Makefile`" in text
    assert {*left_out, "Makefile"} <= {*read(render_html(report)).texts}


async def test_a_report_has_the_time_and_cost_of_each_role(filling: Filling):
    """And the time of the checks."""
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.judged("one", 1)
    await filling.at_fixed_times()
    report = await _report(filling)
    assert [(each.role, each.models, each.used) for each in report.roles] == [
        ("test_writer", ("m",), Usage(1, 900, 0.0, 30.0)),
        ("implementor", ("m",), Usage(1, 12_000, 0.25, 30.0)),
        ("", (), Usage(0, 0, 0.0, 60.0)),
        ("reviewer", ("m",), Usage(1, 0, 0.0, 30.0)),
        ("judge", ("m",), Usage(1, 0, 0.0, 30.0)),
    ]
    assert "implementor: 1 agent call, 12,000 tokens, $0.25, 30 s at work (`m`)" in render_markdown(report)


async def test_a_story_that_was_begun_anew_keeps_its_earlier_attempts(filling: Filling):
    """What did not fit what came meanwhile is told as such."""
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.judged("one", 1)
    filling.store.add_event(
        "anew", "story.retried", story="one", attempt=1, role="merge", complaints=["conflict"]
    )
    filling.store.update_story("one", generation=2, attempt=0, tests_commit=None, base=None)
    await filling.tests("one")
    found = (await _report(filling)).stories[0]
    assert [(each.generation, each.kind, each.state, each.complaints) for each in found.attempts] == [
        (1, "tests", "accepted", ()), (1, "code", "rejected", ("conflict",)), (2, "tests", "accepted", ()),
    ]  # fmt: skip


async def test_a_loop_that_nobody_works_on_was_interrupted(filling: Filling):
    """Its process died; while one works on it, it runs."""
    assert (await _report(filling)).state == "interrupted"
    with filling.directory.held():
        assert (await _report(filling)).state == "running"


async def test_two_who_look_do_not_take_each_other_for_the_worker(filling: Filling):
    """Whoever looks holds nothing that another one sees."""
    import fcntl

    with (filling.directory.path / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert not filling.directory.is_worked_on


async def test_an_unjudged_criterion_is_said_to_be(filling: Filling):
    """Nothing is green by itself."""
    report = await _report(filling)
    assert [said.verdict for said in report.stories[0].criteria] == [None]
    assert "**not judged**: one is there" in render_markdown(report)


async def test_stages_of_an_attempt(filling: Filling):
    """Each is done, rejected, under way, or not begun."""
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.step("one", "review.1", outcome=None, role="reviewer", attempt=1)

    async def now() -> tuple[str, ...]:
        return stages(filling.store.story("one"), filling.store.steps())

    assert await now() == ("ok", "ok", "ok", "...", "")
    await filling.judged("one", 1)
    await filling.rejected("one", 1, "no")
    assert await now() == ("ok", "ok", "ok", "ok", "no")
    filling.store.update_story("one", attempt=2)
    assert await now() == ("ok", "", "", "", "")


async def test_tests_that_were_rejected_are_told(filling: Filling):
    """Before there is any code."""
    filling.store.update_story("one", state=StoryState.RUNNING, base=COMMIT)
    await filling.step("one", "tests.1", role="test_writer", attempt=1)
    row = filling.store.story("one")
    assert stages(row, filling.store.steps())[0] == "..."
    await filling.step("one", "rejected.test_writer.1", outcome="rejected", attempt=1)
    assert stages(row, filling.store.steps())[0] == "no"


async def test_a_story_that_did_not_pass_has_no_patch_on_the_branch(filling: Filling):
    """It is said which attempt has one."""
    filling.store.update_story("one", state=StoryState.SKIPPED)
    await filling.rejected("one", 2, "no", patch="/gone/2.patch")
    with pytest.raises(UsageError, match=r"'one' is skipped: nothing .* --rejected 2 prints its attempt 2"):
        await story_patch(filling.directory, filling.store, "one")


async def test_a_rejected_attempts_patch_is_given_byte_by_byte(filling: Filling, tmp_path: Path):
    """Bytes that are no text included; of one that is gone, or never was, it is said."""
    file = tmp_path / "1.patch"
    file.write_bytes(b"\xff\x00\x1b[2J\r\n")
    await filling.rejected("one", 1, "no", patch=str(file))
    assert await rejected_patch(filling.store, "one", 1) == b"\xff\x00\x1b[2J\r\n"
    with pytest.raises(UsageError, match=r"no attempt 7 of story 'one' .* \(there are: 1\)"):
        await rejected_patch(filling.store, "one", 7)
    file.unlink()
    with pytest.raises(UsageError, match="is gone"):
        await rejected_patch(filling.store, "one", 1)


@pytest.mark.parametrize("name", ["one", "-h", "--answer=x", "a b"])
async def test_the_next_step_names_a_story_whatever_it_is_called(tmp_path: Path, name: str):
    """The command that is told takes it for a story, and for no option."""
    filling = await Filling(tmp_path, story(name)).begin()
    try:
        told = replace(await _report(filling), state="incomplete")
        skipped = replace(told, stories=tuple(replace(each, state="skipped") for each in told.stories))
        command = shlex.split(next_steps(skipped)[0])
    finally:
        filling.close()
    options = ArgumentParser(add_help=False)
    options.add_argument("--loop")
    options.add_argument("story")
    assert command[:3] == ["ringfence", "loop", "retry"]
    assert options.parse_args(command[3:]).story == name


async def test_a_report_is_data(filling: Filling):
    """For `--json`."""
    await filling.tests("one")
    filling.store.end(LoopState.LIMIT, "used up")
    found = json.loads(json.dumps(asdict(await _report(filling))))
    assert (found["state"], found["reason"], len(found["stories"])) == ("limit", "used up", 3)
