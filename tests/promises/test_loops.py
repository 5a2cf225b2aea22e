"""Loops: stories done test-first, each on the evidence of programs, on a branch of their own."""

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.promises.loop_scripts import (
    GOOD,
    OLD_TEST,
    PATIENCE_S,
    case,
    judge,
    kinds,
    prepare,
    start,
    story,
    write_code,
    write_tests,
)
from tests.promises.product import Ended, Product, poll, says

pytestmark = pytest.mark.timeout(300)  # a loop starts many sandboxes, and some tests share a long one
TRIVIAL = OLD_TEST.replace("Old", "Div").replace("old", "div")
CHEAT = "sed -i 's/assertEqual(calc.mod(5, 3), 2)/assertTrue(True)/' tests/test_mod.py; echo >> calc.py"
BREAK = "sed -i 1d calc.py"
HOSTILE = " <script><img>\x1b[2J\u202e [x](http://evil.example)"
CASES = [
    *GOOD,
    *[case("test_writer", "S2", write_tests("sub", 2)), case("implementor", "S2", write_code("sub", "+"))],
    *[case("test_writer", "S4", f"cat > tests/test_div.py <<'EOF'\n{TRIVIAL}EOF"), judge("S4", "met")],
    *[case("test_writer", "S5", write_tests("mod", 2)), case("implementor", "S5", CHEAT), judge("S5", "met")],
    *[case("test_writer", "S6", write_tests("pow", 125)), case("implementor", "S6", write_code("pow", "**"))],
    judge("S6", "not_met", HOSTILE),
    case("test_writer", "S7", write_tests("mul", 15)),
    *[case("implementor", "S7", f"{write_code('mul', '*')}; {BREAK}"), judge("S7", "met")],
]


@pytest.fixture(scope="module")
def done(make_product: Callable[[], Product]) -> tuple[Product, Ended]:
    """A loop that came to its end: one story passed, the others were rejected, each for a different reason."""
    product = make_product()
    product.write("mine", "not committed")
    product.write(
        "tests/test_uses.py",
        OLD_TEST.replace("self.assertTrue(True)", "import calc; self.assertTrue(calc.__doc__)"),
    )
    names = ("add", "sub", "mean", "div", "mod", "pow", "mul")
    stories = [story(name, number) for number, name in enumerate(names, 1)]
    stories[2]["depends_on"] = ["S2"]
    prepare(product, *stories)
    product.write("mine", "changed")
    product.git("stash", "push", "-q", "-m", "kept")
    product.write("mine", "changed again")
    return product, start(product, CASES)


@pytest.fixture(scope="module")
def report(done: tuple[Product, Ended]) -> Any:
    """Its report."""
    return done[0].does("loop show", "--json").json


def test_exit_code(done: tuple[Product, Ended]) -> None:
    """A loop that skipped a story ends with 3, and its last line says which state and code that is."""
    summary = done[1].events[-1]
    assert done[1].code == 3
    loops = [kind for kind in kinds(done[1]) if kind.startswith("loop.")]
    assert loops == ["loop.started", "loop.completed", "loop.summary"]
    assert summary["report"].endswith("report.html")
    assert (summary["event"], summary["state"], summary["exit_code"]) == ("loop.summary", "incomplete", 3)


def test_events(done: tuple[Product, Ended]) -> None:
    """`--json` prints each event: tests before code, code before checks, and how each story ended."""
    found = [
        (event["event"], event.get("story"))
        for event in done[1].events
        if event["event"]
        in {"tests.written", "code.committed", "checks.completed", "story.passed", "story.skipped"}
    ]
    first = [event for event, name in found if name == "S1"]
    assert first == ["tests.written", "code.committed", "checks.completed", "story.passed"]
    assert ("story.skipped", "S2") in found
    assert ("story.skipped", "S3") in found


def test_states(done: tuple[Product, Ended], report: Any) -> None:
    """A story that was accepted has passed; those that were rejected are skipped."""
    assert done
    states = {each["id"]: each["state"] for each in report["stories"]}
    assert states == {"S1": "passed", **{f"S{number}": "skipped" for number in range(2, 8)}}


REJECTED = {
    "code that fails its tests": ("S2", "checks.completed", "test_sub.TestSub.test_sub"),
    "story whose dependency was skipped": ("S3", None, "S2"),
    "tests that pass before anything is built": ("S4", None, "test_div.TestDiv.test_div"),
    "code that changes its tests": ("S5", "tests.written", "tests/test_mod.py"),
    "what the judge rejects": ("S6", "checks.completed", "It is not what was asked for."),
    "code that breaks what was green": ("S7", "checks.completed", "test_uses"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_does_not_pass(done: tuple[Product, Ended], name: str) -> None:
    """A story that its tests, the others or the judge do not prove is skipped for a reason that names what failed."""
    story, last, blamed = REJECTED[name]
    told = [event for event in done[1].events if event.get("story") == story]
    assert any(blamed in json.dumps(event) for event in told if event["event"].startswith("story."))
    events = [event["event"] for event in told]
    assert "story.skipped" in events
    assert "story.passed" not in events
    assert last is None or last in events
    assert last is not None or "code.committed" not in events


def test_branch(done: tuple[Product, Ended]) -> None:
    """What passed is on a branch of the loop's own: a commit for the tests, and one for the code."""
    product, ended = done
    subjects = product.git("log", "--format=%s", f"main..{ended.events[-1]['branch']}").splitlines()
    assert len(subjects) == 2
    assert all("Story of add" in subject for subject in subjects)
    assert "tests" in subjects[1]


def test_trailers(done: tuple[Product, Ended]) -> None:
    """Commits name loop, story, attempt, role and model."""
    product, ended = done
    body = product.git("log", "-1", "--format=%b", ended.events[-1]["branch"])
    found = dict(re.findall(r"^Ringfence-(\w+): (.*)$", body, re.MULTILINE))
    assert found.keys() >= {"Loop", "Story", "Attempt", "Role", "Model"}
    assert (found["Story"], found["Role"], found["Attempt"]) == ("S1", "implementor", "1")
    assert found["Loop"] == ended.events[-1]["id"]
    assert found["Model"].startswith("scripted:")


def test_what_was_rejected_is_not_on_the_branch(done: tuple[Product, Ended]) -> None:
    """Nothing of a story that was skipped is on the branch."""
    product, ended = done
    assert "sub" not in product.git("show", f"{ended.events[-1]['branch']}:calc.py")
    assert "test_sub" not in product.git("ls-tree", "-r", "--name-only", ended.events[-1]["branch"])


def test_the_checkout_stays(done: tuple[Product, Ended]) -> None:
    """The user's branch, working tree and stash are as they were."""
    product, _ = done
    assert product.git("symbolic-ref", "--short", "HEAD").strip() == "main"
    assert (product.project / "mine").read_text() == "changed again"
    assert product.git("stash", "list").count("kept") == 1
    assert "add" not in (product.project / "calc.py").read_text()


def test_stories_file_stays(done: tuple[Product, Ended]) -> None:
    """The stories' file is not written to."""
    assert "passes" not in (done[0].project / "prd.json").read_text()


def test_turns_are_runs(done: tuple[Product, Ended], report: Any) -> None:
    """Each turn of a role and each check was a run of its own, with a record that verifies; the report names each."""
    product, ended = done
    runs = {run for event in ended.events for run in event.get("runs", [])}
    assert len(runs) >= 6
    named = {
        turn["run_id"]
        for story in report["stories"]
        for attempt in story["attempts"]
        for turn in attempt["turns"]
    }
    assert runs <= named <= set(product.runs())
    assert report["record"] in product.runs()
    assert {row["status"] for row in product.does("runs verify", "--all", "--json").json["runs"]} == {
        "sealed"
    }


def test_list(done: tuple[Product, Ended]) -> None:
    """`loop ls --json` lists it with its state, its branch and how many stories passed."""
    (row,) = done[0].does("loop ls", "--json").json["loops"]
    assert (row["state"], row["stories"], row["passed"]) == ("incomplete", 7, 1)
    assert row["branch"] == done[1].events[-1]["branch"]


def test_status(done: tuple[Product, Ended]) -> None:
    """`loop status --json` says of each story the attempt and how each stage went, and what was used."""
    found = done[0].does("loop status", "--json").json
    stages = {each["id"]: each["stages"] for each in found["stories"]}
    assert stages["S1"]["verdict"] == "ok"
    assert stages["S2"]["checks"] == "no"
    assert stages["S6"]["verdict"] == "no"
    assert found["used"]["calls"] >= 10


def test_report(done: tuple[Product, Ended], report: Any) -> None:
    """`loop show --json` has for each story the criteria with verdict and evidence, and what changed, as git says."""
    first = report["stories"][0]
    assert first["criteria"][0]["verdict"] == "met"
    assert first["criteria"][0]["evidence"]
    files = {file["path"]: file for file in first["stat"]["files"]}
    assert files.keys() == {"calc.py", "tests/test_add.py"}
    assert any(line.startswith("+def add") for hunk in files["calc.py"]["hunks"] for line in hunk["lines"])
    rejected = report["stories"][1]["attempts"][-1]["stat"]
    assert any(
        "def sub" in line for file in rejected["files"] for hunk in file["hunks"] for line in hunk["lines"]
    )
    assert report["stories"][1]["reason"]
    product, ended = done
    branch = ended.events[-1]["branch"]
    lines = product.git("diff", "--numstat", f"main...{branch}").splitlines()
    found = {path: int(plus) for plus, _, path in (line.split("\t") for line in lines)}
    assert {each["path"]: each["insertions"] for each in report["stat"]["files"]} == found
    assert report["tip"] == product.git("rev-parse", branch).strip()


def test_report_as_a_page(done: tuple[Product, Ended]) -> None:
    """`loop show --html` writes a page that holds no script and loads nothing, whatever a role said."""
    product, _ = done
    page = product.place / "report.html"
    product.does("loop show", "--html", page)
    text = page.read_text()
    assert "Story of add" in text
    assert "def add" in text
    assert re.search(r'class="evidence"><a href="#d\d+-\d+-L\d+"', text)
    assert "evil.example" in text
    assert not [word for word in ("<script", "<img", "\x1b", "\u202e") if word in text]
    assert "Content-Security-Policy" in text
    assert not re.search(r'(src|href)="https?:', text)


def test_files_of_a_loop(done: tuple[Product, Ended]) -> None:
    """In the loop's directory, the owner's alone, are report, page, and what passed as a patch that git takes."""
    product, ended = done
    place = product.file("loop", loop=ended.events[-1]["id"])
    assert {"report.md", "report.html", "loop.patch"} <= {path.name for path in place.iterdir()}
    assert place.stat().st_mode & 0o77 == 0
    text = (place / "report.md").read_text()
    assert "**incomplete**: 1 passed, 6 skipped" in text
    assert r"\x1b[2J" in text
    assert "\x1b" not in text
    assert "def add" in (place / "loop.patch").read_text()
    product.git("apply", "--check", str(place / "loop.patch"))


def test_diff(done: tuple[Product, Ended]) -> None:
    """`loop diff` prints what the loop changed, what a story changed, and what was rejected."""
    product, _ = done
    assert "def add" in product.does("loop diff").out
    patch = product.place / "S1.patch"
    patch.write_text(product.does("loop diff", "S1").out)
    changed = {line for line in patch.read_text().splitlines() if line.startswith("+++ ")}
    assert changed == {"+++ b/calc.py", "+++ b/tests/test_add.py"}
    product.git("apply", "--check", str(patch))
    assert "def sub" in product.does("loop diff", "S2", "--rejected", "1").out


def test_export(done: tuple[Product, Ended]) -> None:
    """`loop export` writes a copy of the stories' file with their progress."""
    product, _ = done
    copy = product.place / "copy.json"
    product.does("loop export", copy)
    found = {each["id"]: each.get("passes") for each in json.loads(copy.read_text())["stories"]}
    assert found["S1"] is True
    assert [found[f"S{number}"] for number in range(2, 8)] == [False] * 6


def test_export_over_the_source(done: tuple[Product, Ended]) -> None:
    """The file that the stories came from is never written over."""
    product, _ = done
    before = (product.project / "prd.json").read_text()
    assert product("loop export", product.project / "prd.json").ends_as("usage")
    assert (product.project / "prd.json").read_text() == before


def test_a_loop_that_is_not_there(done: tuple[Product, Ended]) -> None:
    """A loop that is not there is an error of one line that names it."""
    ended = done[0]("loop status", "ffffff")
    assert ended.code != 0
    (line,) = ended.err.strip().splitlines()
    assert "ffffff" in line


# Loops of their own.


@pytest.fixture(scope="module")
def merged(make_product: Callable[[], Product]) -> tuple[Product, Ended]:
    """A loop whose one story passed and was merged."""
    product = make_product()
    prepare(product, story("add", 1))
    return product, start(product, GOOD, "--merge")


def test_success_and_merge(merged: tuple[Product, Ended]) -> None:
    """A loop whose stories all passed ends with 0, and with `--merge` the branch it began at is moved forward."""
    product, ended = merged
    assert ended.code == 0
    assert "def add" in product.git("show", "main:calc.py")


def test_another_attempt(product: Product) -> None:
    """After a rejected attempt another one begins from the same commit, and is told why: by its tests, by the judge."""
    prepare(product, story("add", 1))
    told = "It is not what was asked for."
    cases = [
        GOOD[0],
        case("implementor", "S1", write_code("add", "-")),
        case("implementor", "S1", write_code("add", "+")),
        case("implementor", "S1", write_code("add", "+") + "; echo '# as told' >> calc.py"),
        judge("S1", "not_met"),
        GOOD[2],
    ]
    cases[1]["when"].append("attempt: 1 of")
    cases[2]["when"] += ["attempt: 2 of", "test_add.TestAdd.test_add"]
    cases[3]["when"] += ["attempt: 3 of", told]
    cases[4]["when"].append("attempt: 2 of")
    ended = start(product, cases, "--attempts", "3")
    assert ended.code == 0
    assert kinds(ended).count("story.retried") == 2
    assert product.git("show", f"{ended.events[-1]['branch']}:calc.py").count("def add") == 1
    body = product.git("log", "-1", "--format=%b", ended.events[-1]["branch"])
    assert "Ringfence-Attempt: 3" in body
    prompts = [json.dumps(product.recorded("job.created", run)) for run in product.runs()]
    assert any("attempt: 3 of" in prompt and told in prompt for prompt in prompts)


def test_attempts_are_bounded(product: Product) -> None:
    """A story that fails in another way each time has as many attempts as `--attempts` says, and is skipped then."""
    prepare(product, story("add", 1))
    cases = [GOOD[0]]
    for attempt in (1, 2, 3):
        wrong = case("implementor", "S1", f"printf 'def add(a, b):\\n    return {attempt}\\n' >> calc.py")
        wrong["when"].append(f"attempt: {attempt} of")
        cases.append(wrong)
    ended = start(product, cases, "--attempts", "2")
    assert ended.ends_as("check failed"), ended.code
    assert kinds(ended).count("story.retried") == 1
    assert "return 2" in product.does("loop diff", "S1", "--rejected", "2").out
    assert product("loop diff", "S1", "--rejected", "3").code != 0


def test_a_bound_and_resumption(product: Product) -> None:
    """A loop that reaches a bound ends with 5, and `loop resume` goes on with it under another one."""
    prepare(product, story("add", 1))
    ended = start(product, GOOD, "--max-agent-calls", "1")
    assert ended.ends_as("limit")
    resumed = product("loop resume", "--max-agent-calls", "20", "--json", timeout_s=PATIENCE_S)
    assert resumed.code == 0
    assert resumed.events[-1]["id"] == ended.events[-1]["id"]


def test_a_killed_loop(product: Product) -> None:
    """A loop that was killed goes on from the step it was at: no story's tests are written twice."""
    prepare(product, story("add", 1))
    hangs = [GOOD[0], case("implementor", "S1", "sleep 600")]
    model = product.script(name="loop", cases=hangs, price={"input": 0, "output": 0})
    words = ("--prd", "prd.json", "--model", model, "--attempts", "1", "--no-review", "--json")
    with product.started("loop start", *words) as process:
        poll(lambda: product("loop status", "--json").out.find('"tests": "ok"') >= 0)
        process.kill()
        process.wait(30)
    assert product.does("loop ls", "--json").json["loops"][0]["state"] in {"interrupted", "running"}
    product.script(name="loop", cases=GOOD[1:], price={"input": 0, "output": 0})
    resumed = product("loop resume", "--json", timeout_s=PATIENCE_S)
    assert resumed.code == 0
    branch = resumed.events[-1]["branch"]
    assert len(product.git("log", "--format=%s", f"main..{branch}").splitlines()) == 2


def test_cancel_means_the_loop_that_was_just_started(product: Product) -> None:
    """Beside a loop that has ended, `loop cancel` fails until the new one is begun, and then ends that."""
    prepare(product, story("add", 1))
    assert start(product, GOOD).code == 0
    ended = product("loop cancel")
    assert ended.ends_as("usage")
    assert "succeeded" in ended.err
    model = product.script(
        name="loop", cases=[case("test_writer", "S1", "sleep 600")], price={"input": 0, "output": 0}
    )
    with product.started("loop start", "--prd", "prd.json", "--model", model) as process:
        poll(lambda: product("loop cancel").code == 0)
        assert process.wait(PATIENCE_S) == 130
    assert product.does("loop status", "--json").json["state"] == "cancelled"


def test_ctrl_c_cancels_a_loop(product: Product) -> None:
    """Ctrl-C ends a loop with 130, and `loop status` says that it was cancelled."""
    prepare(product, story("add", 1))
    cases = [case("test_writer", "S1", "sleep 600")]
    model = product.script(name="loop", cases=cases, price={"input": 0, "output": 0})
    words = ("--prd", "prd.json", "--model", model, "--attempts", "1", "--no-review", "--json")
    with product.started("loop start", *words) as process:
        poll(lambda: product.file("run", run="").exists() and len(product.runs()) >= 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert product.does("loop status", "--json").json["state"] == "cancelled"


def test_a_story_that_waits_for_a_person(product: Product) -> None:
    """A story that is blocked is not begun, and a loop in which only it remains ends with 6."""
    prepare(product, story("add", 1), story("sub", 2, status="blocked", question="Which way?"))
    ended = start(product, GOOD)
    assert ended.ends_as("blocked")
    assert [event["story"] for event in ended.events if event["event"] == "tests.written"] == ["S1"]


def test_a_goal(product: Product) -> None:
    """With `--goal` the planner drafts the stories, and with `--yes` they are worked on."""
    prepare(product)
    plan = {
        "title": "Calc",
        "description": "",
        "context": [],
        "blocked": None,
        "stories": [{**story("add", 1), "priority": 1, "depends_on": [], "check": "python3 -m unittest -q"}],
    }
    cases = [{"when": ["role: planner"], "turns": [says(json.dumps(plan))]}, *GOOD]
    model = product.script(name="loop", cases=cases, price={"input": 0, "output": 0})
    words = ("--goal", "add() adds", "--yes", "--model", model, "--attempts", "1", "--no-review", "--json")
    ended = product("loop start", *words, timeout_s=PATIENCE_S)
    assert ended.code == 0, ended
    assert "story.passed" in kinds(ended)


def test_a_goal_without_a_yes(product: Product) -> None:
    """Without a terminal and without `--yes` no planner is paid, and nothing is begun."""
    prepare(product)
    ended = product("loop start", "--goal", "add() adds", "--model", product.script(says("x")))
    assert ended.code != 0
    assert product.does("loop ls", "--json").json["loops"] == []


def text_of(*stories: dict[str, Any]) -> str:
    """A file with stories."""
    return json.dumps({"stories": [{"title": "T", "acceptance_criteria": ["c"], **each} for each in stories]})


WRONG: dict[str, tuple[str, str]] = {
    "unknown field": (text_of({"id": "S1", "dependson": []}), "dependson"),
    "same id": (text_of({"id": "S1"}, {"id": "s1"}), "s1"),
    "no criteria": ('{"stories": [{"id": "S1", "title": "T"}]}', "S1"),
    "circle": (text_of({"id": "S1", "depends_on": ["S2"]}, {"id": "S2", "depends_on": ["S1"]}), "S1"),
    "unknown dependency": (text_of({"id": "S1", "depends_on": ["S9"]}), "S9"),
    "no JSON": ('{"stories": [', "JSON"),
    "no stories": ('{"title": "T"}', "stories"),
}


@pytest.mark.parametrize("name", WRONG)
def test_stories_that_are_wrong(product: Product, name: str) -> None:
    """`loop check` says what is wrong with stories, with file, line and value, and ends with 78; nothing is begun."""
    text, value = WRONG[name]
    prepare(product)
    file = product.write("prd.json", text)
    ended = product("loop check", "prd.json", "--model", product.script(says("x")))
    assert ended.ends_as("configuration")
    assert f"{file.name}:1:" in ended.err
    assert value in ended.err
    assert not product.file("run", run="").exists()


def test_check(product: Product) -> None:
    """`loop check` of stories that are fine ends with 0, names stories and checks, and begins nothing."""
    prepare(product, story("add", 1))
    ended = product.does("loop check", "prd.json", "--model", product.script(says("x")))
    assert "S1" in ended.out
    assert "python3 -m unittest -q" in ended.out
    assert not product.file("run", run="").exists()
    assert product.git("branch", "--list", "ringfence/*") == ""


def test_an_untrusted_project(product: Product) -> None:
    """A project's file that says something of loops has to be trusted."""
    prepare(product, story("add", 1))
    product.configure(loop={"attempts": 2})
    ended = start(product, GOOD)
    assert ended.code in {4, 78}
    assert "ringfence.yaml" in ended.err


def test_clean(merged: tuple[Product, Ended]) -> None:
    """`loop clean` removes a loop's clones, and its branch stays."""
    product, ended = merged
    branch = ended.events[-1]["branch"]
    clones = product.place / "cache" / "ringfence" / "loops"
    assert any(clones.rglob("calc.py"))
    product.does("loop clean")
    assert not any(clones.rglob("calc.py"))
    assert product.git("rev-parse", branch)
