"""Test writers of loops: what they may add beside tests, and what they are told of tests that prove nothing."""

import json
import shutil

import pytest
from tests.promises.loop_scripts import (
    GOOD,
    OLD_TEST,
    case,
    judge,
    prepare,
    start,
    story,
    write_code,
    write_tests,
)
from tests.promises.product import Ended, Product

pytestmark = pytest.mark.timeout(300)  # a loop starts many sandboxes
PYTEST = "python3 -m pytest -q"
UNITTEST = "python3 -m unittest -q"


def write(path: str, *lines: str) -> str:
    """A command that writes a file."""
    text = "\n".join(lines)
    return f"mkdir -p \"$(dirname {path})\"\ncat > {path} <<'EOF'\n{text}\nEOF"


def play(product: Product, command: str, *writes: str, code: str, file: str = "calc.py") -> Ended:
    """Run a loop of one story, whose test writer and implementor each run these commands."""
    verdict = judge("S1", "met", file=file)
    cases = [case("test_writer", "S1", "\n".join(writes)), case("implementor", "S1", code), verdict]
    prepare(product, {**story("add", 1), "files": []}, command=command)
    return start(product, cases)


def refused(ended: Ended) -> str:
    """Why the test writer's work was rejected."""
    (failed,) = [each for each in ended.events if each["event"] == "story.failed"]
    assert failed["role"] == "test_writer"
    return json.dumps(failed["complaints"])


WRITTEN = {
    "unittest": (
        UNITTEST,
        (
            write("tests/pieces/__init__.py"),
            write("tests/helpers.py", "import json, pathlib", "", "", "def pairs():",
                  "    return json.loads((pathlib.Path(__file__).parent / 'data/pairs.json').read_text())"),
            write("tests/data/pairs.json", "[[5, 3, 8], [2, 2, 4]]"),
            write("tests/pieces/test_add.py", "import unittest", "from tests.helpers import pairs", "", "",
                  "class TestAdd(unittest.TestCase):", "    def test_pairs(self):", "        import calc",
                  "        for a, b, result in pairs():", "            self.assertEqual(calc.add(a, b), result)"),
        ),
        write_code("add", "+"),
        "calc.py",
    ),
    "pytest": (
        PYTEST,
        (
            write("tests/conftest.py", "import json, pathlib", "import pytest", "", "", "@pytest.fixture",
                  "def pairs():",
                  "    return json.loads((pathlib.Path(__file__).parent / 'data/pairs.json').read_text())"),
            write("tests/data/pairs.json", "[[5, 3, 8], [2, 2, 4]]"),
            write("tests/helpers.py", "def add(a, b):", "    import calc", "    return calc.add(a, b)"),
            write("tests/test_add.py", "from tests.helpers import add", "", "", "def test_pairs(pairs):",
                  "    for a, b, result in pairs:", "        assert add(a, b) == result"),
        ),
        write_code("add", "+"),
        "calc.py",
    ),
    "node": (
        "node --test",
        (
            write("test/helper.js", "exports.pairs = require('./fixtures/a.json');"),
            write("test/fixtures/a.json", "[[5, 3, 8], [2, 2, 4]]"),
            write("test/add.test.js", "const test = require('node:test');", "const assert = require('node:assert');",
                  "const { pairs } = require('./helper.js');",
                  "test('pairs', () => { const { add } = require('../calc.js');",
                  "  for (const [a, b, sum] of pairs) assert.strictEqual(add(a, b), sum); });"),
        ),
        "echo 'exports.add = (a, b) => a + b;' > calc.js",
        "calc.js",
    ),
    "go": (
        "go test ./...",
        (
            write("testdata/a.txt", "5 3 8"),
            write("helper_test.go", "package calc", "", 'import "testing"', "",
                  "func check(t *testing.T, a, b, sum int) {", "\tt.Helper()",
                  "\tif Add(a, b) != sum {", '\t\tt.Fatal("wrong")', "\t}", "}"),
            write("add_test.go", "package calc", "", 'import "testing"', "",
                  "func TestAdd(t *testing.T) { check(t, 5, 3, 8) }"),
        ),
        "printf 'package calc\\n\\nfunc Add(a, b int) int { return a + b }\\n' > add.go",
        "add.go",
    ),
}  # fmt: skip


@pytest.mark.parametrize("runner", WRITTEN)
def test_files_that_tests_need(with_pytest: Product, runner: str) -> None:
    """Packages, fixtures, helpers and data beside the tests are taken over with them, in every runner."""
    product, (command, writes, code, file) = with_pytest, WRITTEN[runner]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"there is no {command.split()[0]}")
    if runner == "go":
        product.write("go.mod", "module example.com/calc\n\ngo 1.19\n")
        product.write("calc.go", "package calc\n")
    ended = play(product, command, *writes, code=code, file=file)
    assert ended.code == 0, ended
    files = product.git("ls-tree", "-r", "--name-only", ended.events[-1]["branch"]).splitlines()
    written = [line.split()[2] for each in writes for line in each.splitlines() if line.startswith("cat > ")]
    assert set(written) <= set(files)


PARAMETRIZED = """import json, pathlib, pytest

PAIRS = json.loads((pathlib.Path(__file__).parent / "pairs.json").read_text())


@pytest.mark.parametrize("name,result", PAIRS)
def test_pair(name, result):
    import calc

    assert getattr(calc, name)(5, 3) == result
"""


def test_data_that_make_new_tests(with_pytest: Product) -> None:
    """Data alone is a story's tests where tests that were there read it and new ones come of it."""
    product = with_pytest
    product.write("tests/pairs.json", "[]")
    product.write("tests/test_pairs.py", PARAMETRIZED)
    data = write("tests/pairs.json", '[["add", 8]]')
    ended = play(product, PYTEST, data, code=write_code("add", "+"))
    assert ended.code == 0, ended


PROVE_NOTHING = {
    "files without a test": ([write("tests/helpers.py", "x = 1")], "tests/helpers.py"),
    "a test that passes": (
        [write_tests("add", 8), write("tests/test_vacuous.py", "import unittest", "", "",
         "class Test(unittest.TestCase):", "    def test_vacuous(self):", "        pass")],
        "test_vacuous.Test.test_vacuous",
    ),
    "a test that was there is broken": (
        [write_tests("add", 8), write("tests/__init__.py", "import os", "os.environ['BROKEN'] = '1'")],
        "test_uses",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVE_NOTHING)
def test_work_that_proves_nothing(product: Product, name: str) -> None:
    """A test writer's work without a new test that fails, or that harms other tests, is rejected with the name."""
    writes, blamed = PROVE_NOTHING[name]
    product.write(
        "tests/test_uses.py",
        OLD_TEST.replace("self.assertTrue(True)", "import os; self.assertNotIn('BROKEN', os.environ)"),
    )
    ended = play(product, UNITTEST, *writes, code=write_code("add", "+"))
    assert ended.code == 3, ended
    assert blamed in refused(ended)


def test_a_fresh_repository(product: Product) -> None:
    """Where unittest does not look into a directory, the test writer is told which file to add, and then it passes."""
    first = case("test_writer", "S1", write_tests("add", 8))
    first["when"].append("attempt: 1 of")
    second = case("test_writer", "S1", f"touch tests/__init__.py; {write_tests('add', 8)}")
    second["when"].append("add the empty file tests/__init__.py")
    product.write("calc.py", '"""Sums."""\n')
    product.write("tests/notes.txt", "Tests are to come.")
    prd = {"title": "Calc", "test_command": UNITTEST, "stories": [story("add", 1)]}
    product.write("prd.json", json.dumps(prd))
    product.git("add", "-A")
    product.git("commit", "-qm", "Start")
    ended = start(product, [first, second, *GOOD[1:]], "--attempts", "2")
    assert ended.code == 0, ended
