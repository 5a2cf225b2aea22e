"""Checks run in real sandboxes: what each test came to, test by test."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest
from tests.cases import slow_after, slow_but
from tests.loop.suite.conftest import ENVIRONMENT, Run, needs_node
from tests.loop.suite.conftest import PYTEST as COMMAND

from ringfence.check import Check, new_failures, red_for_the_right_reason, run_check
from ringfence.check.baseline import Expected
from ringfence.check.red_reason import Project
from ringfence.errors import ConfigurationError
from ringfence.sandbox import Sandbox, SandboxSpec

CALC = "def add(a, b):\n    return a + b\n"
PYTEST = {
    "calc.py": CALC,
    "tests/test_calc.py": (
        "import pytest\nfrom calc import add\n"
        "def test_right(): assert add(1, 2) == 3\n"
        "def test_wrong(): assert add(1, 2) == 4\n"
        "@pytest.mark.skip\ndef test_left_out(): pass\n"
        "@pytest.fixture\ndef broken(): raise ValueError('no')\n"
        "def test_of_fixture(broken): pass\n"
    ),
}
UNITTEST = {
    "calc.py": CALC,
    "test_calc.py": (
        "import unittest\nfrom calc import add\n"
        "class Adding(unittest.TestCase):\n"
        "    def test_right(self): self.assertEqual(add(1, 2), 3)\n"
        "    def test_wrong(self): self.assertEqual(add(1, 2), 4)\n"
        "    @unittest.skip('later')\n    def test_left_out(self): pass\n"
        "    def test_of_fixture(self): raise ValueError('no')\n"
    ),
}
NODE = {
    "calc.mjs": "export const add = (a, b) => a + b;\n",
    "calc.test.mjs": (
        "import { describe, it, test, before } from 'node:test';\nimport assert from 'node:assert';\n"
        "import { add } from './calc.mjs';\n"
        "test('test_right', () => assert.equal(add(1, 2), 3));\n"
        "test('test_wrong', () => assert.equal(add(1, 2), 4));\n"
        "test('test_left_out', { skip: true }, () => {});\n"
        "describe('test_of_fixture', () => { before(() => { throw new Error('no'); }); it('a', () => {}); });\n"
    ),
}
LIKE = {
    "pytest": (PYTEST, "tests/test_calc.py::", "tests/test_calc.py"),
    "unittest": (UNITTEST, "test_calc.Adding.", "test_calc.py"),
    "node": (NODE, "calc.test.mjs > ", "calc.test.mjs"),
}
RUNNERS = [
    "unittest",
    pytest.param("pytest", marks=pytest.mark.slow),
    pytest.param("node", marks=[needs_node, pytest.mark.slow]),
]


@pytest.mark.parametrize("runner", RUNNERS)
async def test_each_test_is_told(runner: str, run: Run) -> None:
    """Of each test its outcome, its file and why it failed are told; the canary is not among them."""
    files, prefix, file = LIKE[runner]
    report = await run(files, runner=runner)
    report.results.pop("calc.test.mjs > test_of_fixture > a", None)  # type: ignore[attr-defined]  # not run either
    assert {name: each.outcome for name, each in report.results.items()} == {
        f"{prefix}test_right": "passed",
        f"{prefix}test_wrong": "failed",
        f"{prefix}test_left_out": "skipped",
        # Of node a suite that cannot be set up is told as its file, which it stands for.
        file if runner == "node" else f"{prefix}test_of_fixture": "error",
    }
    assert {each.file for each in report.results.values()} == {file}
    assert (report.is_complete, report.problems, report.is_green) == (True, (), False)
    assert "Assertion" in report.results[f"{prefix}test_wrong"].detail


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("canary", [True, False])
async def test_green(runner: str, canary: bool, run: Run) -> None:
    """A suite of which all passes is green, with and without a canary."""
    files, _, file = LIKE[runner]
    good = {**files, file: "\n".join(files[file].splitlines()[: 3 if runner == "pytest" else 4]) + "\n"}
    report = await run(good, runner=runner, canary=canary)
    assert (report.is_green, report.problems) == (True, ())
    assert [each.outcome for each in report.results.values()] == ["passed"]


@pytest.mark.slow
async def test_one_broken_file_hides_no_other(run: Run) -> None:
    """A file that cannot be loaded is a result of its own, and the others are run."""
    report = await run({**PYTEST, "tests/test_odd.py": "def x(:\n"})
    assert report.results["tests/test_odd.py"].outcome == "error"
    assert report.results["tests/test_calc.py::test_right"].outcome == "passed"


@pytest.mark.slow
async def test_the_first_failure_ends_nothing(run: Run) -> None:
    """A project that asks to stop at the first failure is run to its end all the same."""
    report = await run(
        {**PYTEST, "pytest.ini": "[pytest]\naddopts = -x\n"}, command=f"{COMMAND} -x --maxfail=1"
    )
    assert (len(report.results), report.is_complete) == (4, True)


@pytest.mark.slow
async def test_paths_are_those_of_the_workspace(run: Run) -> None:
    """Wherever the command goes, ids and files are relative to the workspace."""
    files = {f"inner/{name}": text for name, text in PYTEST.items()}
    report = await run(files, command=f"cd inner && PYTHONPATH=.:$PYTHONPATH {COMMAND} tests")
    assert "inner/tests/test_calc.py::test_right" in report.results
    assert report.is_complete


@pytest.mark.slow
async def test_time_is_up(run: Run) -> None:
    """A check that takes too long is ended, told as such, and what came before is kept."""
    slow = {"test_slow.py": "import time\ndef test_quick(): pass\ndef test_slow(): time.sleep(600)\n"}
    report = await run(slow, timeout_s=4.0)
    assert (report.is_complete, report.ended_by) == (False, "timeout")
    assert report.results["test_slow.py::test_quick"].outcome == "passed"
    assert any("was not done after 4 s" in problem for problem in report.problems)


@pytest.mark.parametrize(
    ("command", "said"),
    slow_after(
        2,
        [
            ("true", "pytest sent no report"),
            ("no-such-runner", "exit code 127"),
            (f"{COMMAND} || true", "exited with 0 although tests failed"),
            ("python3 -I -c 'import sys; sys.exit(3)'", "exit code 3"),
        ],
    ),
)
async def test_no_report_is_not_green(command: str, said: str, run: Run) -> None:
    """A command that starts no runner, or hides what it says, is not complete, whatever its exit code."""
    report = await run(PYTEST, command=command)
    assert (report.is_complete, report.is_green) == (False, False)
    assert any(said in problem for problem in report.problems), report.problems


@pytest.mark.slow
async def test_no_tests_are_not_green(run: Run) -> None:
    """A suite without a test is no green one."""
    report = await run({"calc.py": CALC})
    assert (report.results, report.is_green, report.problems) == ({}, False, ("no test was found",))


async def test_a_host_that_is_held_up_misses_nothing(
    project: Callable[[Mapping[str, str]], Path],
) -> None:
    """Also where it hears of the report's beginning and of the command's end at once."""
    root = project(
        {"test_it.py": "import unittest\nclass It(unittest.TestCase):\n    def test_it(self): pass\n"}
    )

    async def hold_up() -> None:
        while not (root / "begun").exists():  # noqa: ASYNC110 -- the sandbox has no event for it
            await anyio.sleep(0.001)
        while not (root / "ended").exists():
            time.sleep(0.01)  # noqa: ASYNC251 -- nothing else goes on meanwhile
        time.sleep(0.1)  # noqa: ASYNC251

    command = "touch begun; python3 -m unittest -q; code=$?; touch ended; exit $code"
    check = Check("test", "tests", command, 60.0, "unittest")
    spec = SandboxSpec(backend="bubblewrap", workspace=root)
    async with Sandbox.open(spec) as sandbox, anyio.create_task_group() as tasks:
        tasks.start_soon(hold_up)
        report = await run_check(check, sandbox, canary=True)
    assert (report.problems, report.is_green) == ((), True)


async def test_only_the_exit_code(run: Run) -> None:
    """A check without a runner has one result, by its exit code; a program that is absent is no result."""
    green = await run({}, runner=None, command="true")
    red = await run({}, runner=None, command="echo why; false")
    absent = await run({}, runner=None, command="no-such-linter")
    assert (green.is_green, red.is_green, red.results["tests"].detail) == (True, False, "why\n")
    assert (absent.is_complete, absent.problems) == (
        False,
        ("tests could not be run: its program was not found: 'no-such-linter'",),
    )


async def test_a_runner_that_there_is_not(run: Run) -> None:
    """A runner that is not known is an error that names those that are."""
    with pytest.raises(ConfigurationError, match="there are pytest, unittest, node"):
        await run({}, runner="nose", command="true")


RED = {
    "module": ("from calc.more import sub\ndef test_a(): pass\n", ""),
    "name": ("from calc import sub\ndef test_a(): pass\n", ""),
    "attribute": ("import calc\ndef test_a(): assert calc.sub(2, 1) == 1\n", ""),
    "assertion": ("import calc\ndef test_a(): assert calc.add(2, 1) == 1\n", ""),
    "story": ("import fresh\ndef test_a(): pass\n", ""),
    "vacuous": ("def test_a(): assert True\n", "passes before anything was built"),
    "syntax": ("def test_a(:\n", "SyntaxError"),
    "foreign": ("import numpie\ndef test_a(): pass\n", "'numpie' is not installed"),
    "foreign_name": ("from os import nothing\ndef test_a(): pass\n", "cannot import name"),
    "unbound": ("def test_a(): assert calk.sub() == 1\n", "in the test file itself"),
    "fixture": ("def test_a(absent): pass\n", "fixture 'absent' not found"),
    "empty": ("x = 1\n", "none of its tests was collected"),
    "skipped": ("import pytest\n@pytest.mark.skip\ndef test_a(): pass\n", "all its new tests are skipped"),
    "skipped_file": (
        "import pytest\npytest.skip('x', allow_module_level=True)\n",
        "all its new tests are skipped",
    ),
    "xfail": ("import pytest\n@pytest.mark.xfail\ndef test_a(): assert 0\n", "all its new tests are skipped"),
}


@pytest.mark.parametrize("case", slow_but(("module", "vacuous"), RED))
async def test_red_for_the_right_reason(case: str, run: Run) -> None:
    """The absence of what is to be built is the right red; a vacuous, skipped or broken test is not."""
    text, complaint = RED[case]
    report = await run({**PYTEST, "tests/test_new.py": text})
    project = Project(files=[*PYTEST, "tests/test_new.py"], text="Add the package fresh.")
    complaints = red_for_the_right_reason(report, ["tests/test_new.py"], None, project=project)
    assert [complaint in each for each in complaints] == ([True] if complaint else []), complaints


async def test_red_of_unittest(run: Run) -> None:
    """The same with unittest, which wraps what it could not load in an error of its own."""
    head = "import unittest\nclass New(unittest.TestCase):\n    def test_a(self): "
    files = {
        **UNITTEST,
        "test_module.py": "from calc.more import sub\n",
        "test_name.py": "from calc import sub\n",
        "test_behaviour.py": f"{head}self.assertEqual(1, 2)\n",
        "test_vacuous.py": f"{head}pass\n",
        "test_syntax.py": "def x(:\n",
        "test_foreign.py": "import numpie\n",
    }
    report = await run(files, runner="unittest")
    new = sorted(files.keys() - UNITTEST.keys())
    complaints = red_for_the_right_reason(report, new, None, project=Project(files=files))
    assert [each.split(":")[0] for each in complaints] == [
        "test_foreign.py",
        "test_syntax.py",
        "test_vacuous.New.test_a",
    ]


@pytest.mark.slow
async def test_against_the_base(run: Run) -> None:
    """What was red before is not new; a test that is gone or skipped now is missing."""
    before = await run(PYTEST)
    changed = PYTEST["tests/test_calc.py"].replace("def test_right(): assert", "def test_new(): assert not")
    after = await run({**PYTEST, "tests/test_calc.py": changed})
    assert [each.id for each in new_failures(after, before)] == ["tests/test_calc.py::test_new"]
    assert Expected(frozenset(before.results)).missing(after) == [
        "tests/test_calc.py::test_left_out",
        "tests/test_calc.py::test_right",
    ]


@pytest.mark.slow
@needs_node
async def test_red_of_node(run: Run) -> None:
    """The same with node, where a file that cannot be loaded says why only by what it prints."""
    head = "import { test } from 'node:test';\n"
    files = {
        **NODE,
        "absent.test.mjs": "import { sub } from './more.mjs';\n",
        "absent.test.cjs": "require('./more.js');\n",
        "behaviour.test.mjs": f"{head}test('a', () => {{ throw new Error('no'); }});\n",
        "broken.test.mjs": "let x = ;\n",
        "export.test.mjs": "import { sub } from './calc.mjs';\n",
        "foreign.test.mjs": "import x from 'left-pad';\n",
        "foreign.test.cjs": "require('left-pad');\n",
        "unbound.test.mjs": f"{head}test('a', () => sub(1));\n",
        "vacuous.test.mjs": f"{head}test('a', () => {{}});\n",
    }
    report = await run(files, runner="node")
    new = sorted(files.keys() - NODE.keys())
    complaints = red_for_the_right_reason(report, new, None, project=Project(files=files))
    broken = [
        "broken.test.mjs",
        "foreign.test.cjs",
        "foreign.test.mjs",
        "unbound.test.mjs > a",
        "vacuous.test.mjs > a",
    ]
    assert [each.split(":")[0] for each in complaints] == broken, complaints


@pytest.mark.slow
@needs_node
async def test_files_are_left_as_they_were(project: Callable[[Mapping[str, str]], Path]) -> None:
    """What was put into test files, and beside them, is taken out again."""
    root = project(NODE)
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=root)) as sandbox:
        await run_check(Check("test", "tests", "node --test", 60.0, "node"), sandbox, canary=True)
        left = [entry.name for entry in await sandbox.list_dir("/tmp")]
    assert {path.name: path.read_text() for path in root.iterdir()} == NODE
    assert [name for name in left if name.startswith("ringfence-")] in ([], [root.name])


@pytest.mark.slow
async def test_workers(run: Run) -> None:
    """Tests that are run by several workers are told as those of one are, each with its canary."""
    report = await run(PYTEST, command=f"{COMMAND} -p xdist.plugin -n 2")
    plain = await run(PYTEST)
    assert {name: each.outcome for name, each in report.results.items()} == {
        name: each.outcome for name, each in plain.results.items()
    }
    assert (report.is_complete, report.problems) == (True, ())


@pytest.mark.slow
async def test_a_pytest_within_a_test(run: Run) -> None:
    """A pytest that a test starts is neither reported nor given a canary."""
    inner = (
        "import subprocess, sys\ndef test_a():\n"
        "    assert subprocess.call([sys.executable, '-m', 'pytest', 'inner.py']) == 0\n"
    )
    report = await run({"inner.py": "def test_b(): pass\n", "test_outer.py": inner})
    assert (list(report.results), report.is_green) == (["test_outer.py::test_a"], True), report.output


@pytest.mark.slow
async def test_cases_of_unittest_under_pytest(run: Run) -> None:
    """Cases of unittest that pytest runs are told as its own are."""
    report = await run(UNITTEST)
    assert report.results["test_calc.py::Adding::test_right"].outcome == "passed"
    assert report.results["test_calc.py::Adding::test_wrong"].outcome == "failed"
    assert report.is_complete


async def test_a_class_that_cannot_be_set_up(run: Run) -> None:
    """What a class of unittest's needs, and is not there, is red for the right reason; built, nothing is missing."""
    case = (
        "import unittest, calc\nclass New(unittest.TestCase):\n"
        "    @classmethod\n    def setUpClass(cls): cls.it = calc.Made()\n"
    )
    files = {**UNITTEST, "test_new.py": f"{case}    def test_a(self): pass\n"}
    red = await run(files, runner="unittest")
    assert red_for_the_right_reason(red, ["test_new.py"], None, project=Project(files=files)) == []
    green = await run({**files, "calc.py": f"{CALC}\nclass Made: pass\n"}, runner="unittest")
    assert Expected(frozenset(each.id for each in red.red())).missing(green) == []


@needs_node
async def test_files_of_others_are_left_alone(project: Callable[[Mapping[str, str]], Path]) -> None:
    """Among test files only those of node get a canary while its tests are run."""
    files = {
        **NODE,
        "tests/test_a.py": "x = 1\n",
        "tests/data.js": "data\n",
        "spec/b.js": "import 'node:test';\n",
    }
    root = project({**files, "calc.test.mjs": NODE["calc.test.mjs"] + LOOK})
    check = Check("test", "tests", "node --test calc.test.mjs", 60.0, "node")
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=root)) as sandbox:
        report = await run_check(check, sandbox, canary=True, test_files=list(files))
    assert report.results["calc.test.mjs > as they were"].outcome == "passed"


LOOK = """
import { readFileSync } from 'node:fs';
test('as they were', () => {
  assert.equal(readFileSync('tests/test_a.py', 'utf8'), 'x = 1\\n');
  assert.equal(readFileSync('tests/data.js', 'utf8'), 'data\\n');
  assert.notEqual(readFileSync('spec/b.js', 'utf8'), "import 'node:test';\\n");
});
"""


SCRIPT = {"t.sh": f"set -e\n{COMMAND}\necho and more\n", "calc.py": "def add(a, b): return a + b\n"}
SCRIPT |= {"test_calc.py": "from calc import add\ndef test_add(): assert add(1, 2) == 3\n"}


@pytest.mark.slow
async def test_pytest_that_a_command_starts_is_read_too(run: Run) -> None:
    """By test, beside the exit code of the whole command, whose other parts are run as well."""
    report = await run(SCRIPT, runner=None, command="sh t.sh")
    assert {name: each.outcome for name, each in report.results.items()} == {
        "tests": "passed", "test_calc.py::test_add": "passed",
    }  # fmt: skip
    assert (report.runner, report.is_green, "and more" in report.output) == ("pytest", True, True)
    alone = await run(
        SCRIPT, runner=None, command="sh t.sh", only="test_calc.py::test_add", test_files=("test_calc.py",)
    )
    assert (alone.is_green, alone.altered) == (True, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        "import atexit, os; atexit.register(os._exit, 0)",
        "import _pytest.python as p\np.Function.runtest = lambda self: None",
        "import os; os._exit(0)",
    ],
)
async def test_a_command_that_starts_pytest_is_not_fooled(attack: str, run: Run) -> None:
    """By code that ends with 0 though tests fail, that runs none of them, or that leaves at once."""
    wrong = f"{attack}\ndef add(a, b): return 0\n"
    report = await run({**SCRIPT, "calc.py": wrong}, runner=None, command="sh t.sh")
    expected = Expected(frozenset({"test_calc.py::test_add"}))
    assert not report.is_green or report.altered or expected.missing(report)


@pytest.mark.slow
async def test_a_command_that_starts_no_pytest_has_its_exit_code(run: Run) -> None:
    """Also where it hands on our options without our path, with which pytest would not start."""
    report = await run(SCRIPT, runner=None, command="echo fine")
    assert ({name: each.outcome for name, each in report.results.items()}, report.runner) == (
        {"tests": "passed"},
        None,
    )
    stripped = f"export PYTHONPATH={ENVIRONMENT['PYTHONPATH']}; exec {COMMAND}"
    report = await run({**SCRIPT, "u.sh": stripped}, runner=None, command="sh u.sh")
    assert ({name: each.outcome for name, each in report.results.items()}, report.runner) == (
        {"tests": "passed"},
        None,
    )
