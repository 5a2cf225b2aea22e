"""Product code that tries to make a red suite look green. What is found here, and what is not, is in the docs."""

import pytest
from tests.cases import slow_after
from tests.loop.suite.conftest import Run, needs_node

from ringfence.check import new_failures

TEST = "from calc import add\ndef test_add(): assert add(1, 2) == 3\ndef test_more(): assert add(2, 2) == 4\n"
WRONG = "\ndef add(a, b):\n    return 0\n"
CASE = (
    "import unittest\nfrom calc import add\n"
    "class Adding(unittest.TestCase):\n"
    "    def test_add(self): self.assertEqual(add(1, 2), 3)\n"
    "    def test_more(self): assert add(2, 2) == 4\n"
)
PYTEST_ATTACKS = {
    "leaves at import": "import os; os._exit(0)",
    "leaves in a test": "import os\ndef add(a, b): os._exit(0)",
    "leaves at the end": "import atexit, os; atexit.register(os._exit, 0)",
    "raises SystemExit": "raise SystemExit(0)",
    "asks pytest to exit": "import pytest; pytest.exit('fine', returncode=0)",
    "reports pass for all": (
        "import _pytest.reports as r\nold = r.TestReport.__init__\n"
        "def new(self, nodeid, location, keywords, outcome, longrepr, when, *a, **k):\n"
        "    old(self, nodeid, location, keywords, 'passed', None, when, *a, **k)\n"
        "r.TestReport.__init__ = new"
    ),
    "runs nothing": "import _pytest.python as p\np.Function.runtest = lambda self: None",
    "swallows what is raised": (
        "import _pytest.runner as r\nold = r.CallInfo.from_call.__func__\n"
        "def quiet(cls, func, when, reraise=None):\n"
        "    def calm():\n        try: func()\n        except BaseException: pass\n"
        "    return old(cls, calm, when, reraise)\n"
        "r.CallInfo.from_call = classmethod(quiet)"
    ),
    "registers a plugin": (
        "import gc, pytest\nfrom _pytest.config import Config\n"
        "class Kind:\n"
        "    @pytest.hookimpl(hookwrapper=True, tryfirst=True)\n"
        "    def pytest_runtest_makereport(self):\n"
        "        outcome = yield\n        outcome.get_result().outcome = 'passed'\n"
        "for each in gc.get_objects():\n"
        "    if type(each) is Config: each.pluginmanager.register(Kind())"
    ),
    "empties the list of tests": (
        "import gc\nfrom _pytest.main import Session\n"
        "import _pytest.main as m\nm._main = lambda config, session: 0\n"
        "Session.perform_collect = lambda self, *a, **k: []\n"
        "import _pytest.runner as r\nr.runtestprotocol = lambda *a, **k: []"
    ),
    "silences the report": (
        "import sys\nfor name in list(sys.modules):\n"
        "    if name.startswith('ringfence_') and name.endswith('channel'):\n"
        "        old = sys.modules[name].Channel.send\n"
        "        def send(self, kind, **fields):\n"
        "            if fields.get('outcome') in ('failed', 'error'): fields.update(outcome='passed', cause=None)\n"
        "            old(self, kind, **fields)\n"
        "        sys.modules[name].Channel.send = send"
    ),
    "overwrites what was told": (
        "import atexit, gc, socket, json, os\n"
        "def lie():\n"
        "    for each in gc.get_objects():\n"
        "        if isinstance(each, socket.socket):\n"
        "            for name in ('test_add', 'test_more'):\n"
        "                line = {'kind': 'result', 'id': 'test_calc.py::' + name, 'outcome': 'passed',\n"
        "                        'file': 'test_calc.py', 'detail': '', 'cause': None}\n"
        "                each.sendall(json.dumps(line).encode() + b'\\n')\n"
        "    os._exit(0)\n"
        "atexit.register(lie)"
    ),
    "speaks for itself": (
        "import atexit, glob, json, os, socket\n"
        "def lie():\n"
        "    one = socket.socket(socket.AF_UNIX); one.connect(glob.glob('/tmp/ringfence-*/socket')[0])\n"
        "    lines = [{'kind': 'begin', 'runner': 'pytest'}]\n"
        "    lines += [{'kind': 'result', 'id': 'test_calc.py::' + name, 'outcome': 'passed',\n"
        "               'file': 'test_calc.py', 'detail': '', 'cause': None} for name in ('test_add', 'test_more')]\n"
        "    lines += [{'kind': 'end', 'exit': 0}]\n"
        "    one.sendall(''.join(json.dumps(line) + '\\n' for line in lines).encode())\n"
        "atexit.register(lie)"
    ),
    "takes the assertions away": (
        "import sys\nmodule = sys.modules.get('_pytest.assertion.rewrite')\n"
        "import builtins\nclass Calm(BaseException): pass\n"
        "def calm(*a): raise Calm\n"
        "import _pytest.python as p\nold = p.Function.runtest\n"
        "def runtest(self):\n    try: old(self)\n    except AssertionError: pass\n"
        "p.Function.runtest = runtest"
    ),
    "skips": "import pytest\ndef add(a, b): pytest.skip('not here')",
    "expects failure": "import pytest\ndef add(a, b): pytest.xfail('not here')",
    "leaves by a fork": "import os\nif os.fork(): os.waitpid(-1, 0); os._exit(0)",
    "kills the runner": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "floods": "import os\nos.write(2, b'x' * 50_000_000)",
}


@pytest.mark.parametrize("name", slow_after(2, PYTEST_ATTACKS))
async def test_pytest_is_not_fooled(name: str, run: Run) -> None:
    """Product code that turns on pytest gets no green report, and both tests are not believed to have passed."""
    report = await run(
        {
            "calc.py": f"{PYTEST_ATTACKS[name]}\n{'' if 'def add' in str(PYTEST_ATTACKS[name]) else WRONG}",
            "test_calc.py": TEST,
        }
    )
    told = {name: each.outcome for name, each in report.results.items() if each.outcome == "passed"}
    assert not (report.is_complete and len(told) == 2 and not new_failures(report, None)), report


UNITTEST_ATTACKS = {
    "leaves at import": "import os; os._exit(0)",
    "leaves in a test": "import os\ndef add(a, b): os._exit(0)",
    "leaves at the end": "import atexit, os; atexit.register(os._exit, 0)",
    "raises SystemExit": "raise SystemExit(0)",
    "asserts nothing": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None",
    "runs nothing": "import unittest.case as c\nc.TestCase._callTestMethod = lambda self, method: None",
    "runs no case": "import unittest.case as c\nc.TestCase.run = lambda self, result=None: result.addSuccess(self)",
    "takes no failure": (
        "import unittest.result as r\n"
        "r.TestResult.addFailure = r.TestResult.addError = lambda self, test, err: self.addSuccess(test)"
    ),
    "takes no failure of ours": (
        "import gc, unittest\n"
        "for each in gc.get_objects():\n"
        "    if isinstance(each, type) and issubclass(each, unittest.TestResult):\n"
        "        each.addFailure = each.addError = lambda self, test, err: self.addSuccess(test)"
    ),
    "stops": "from unittest.case import _ShouldStop\ndef add(a, b): raise _ShouldStop",
    "stops by another": (
        "import unittest.case as c\nclass Stop(BaseException): pass\nc._ShouldStop = Stop\ndef add(a, b): raise Stop"
    ),
    "says all is well": "import unittest.result as r\nr.TestResult.wasSuccessful = lambda self: True",
    "calms the outcome": (
        "import unittest.case as c, contextlib\n"
        "@contextlib.contextmanager\n"
        "def calm(self, case, subTest=False):\n"
        "    try: yield\n    except BaseException: pass\n"
        "c._Outcome.testPartExecutor = calm"
    ),
    "skips": "import unittest\ndef add(a, b): raise unittest.SkipTest('no')",
}


@pytest.mark.parametrize("name", slow_after(3, UNITTEST_ATTACKS))
async def test_unittest_is_not_fooled(name: str, run: Run) -> None:
    """Product code that turns on unittest gets no green report."""
    code = UNITTEST_ATTACKS[name]
    report = await run(
        {"calc.py": f"{code}\n{'' if 'def add' in code else WRONG}", "test_calc.py": CASE}, runner="unittest"
    )
    told = [each for each in report.results.values() if each.outcome == "passed"]
    assert not (report.is_complete and len(told) == 2 and not new_failures(report, None)), report


NODE_TEST = (
    "import { test } from 'node:test';\nimport assert from 'node:assert';\nimport { add } from './calc.mjs';\n"
    "test('add', () => assert.strictEqual(add(1, 2), 3));\ntest('more', () => assert.equal(add(2, 2), 4));\n"
)
NODE_ATTACKS = {
    "leaves at import": "process.exit(0);",
    "leaves soon": "setImmediate(() => process.exit(0));",
    "leaves at the end": "process.on('exit', () => process.reallyExit(0));",
    "asserts nothing": (
        "import assert from 'node:assert';\nassert.strictEqual = assert.equal = () => {};"
        "import { syncBuiltinESMExports } from 'node:module'; syncBuiltinESMExports();"
    ),
    "asserts nothing at all": "import assert from 'node:assert';\nfor (const name in assert) assert[name] = () => {};",
    "kills its parent": "process.kill(process.ppid, 'SIGKILL');",
    "makes every error pass": (
        "import { createRequire } from 'node:module';\nconst t = createRequire(import.meta.url)('node:test');\n"
        "import { syncBuiltinESMExports } from 'node:module';\nconst old = t.test;\n"
        "t.test = (name, fn) => old(name, () => {}); syncBuiltinESMExports();"
    ),
    "prints its own result": "console.log('ok 1 - add\\nok 2 - more\\n1..2\\n# pass 2\\n# fail 0'); process.exit(0);",
}


@needs_node
@pytest.mark.parametrize("name", slow_after(1, NODE_ATTACKS))
async def test_node_is_not_fooled(name: str, run: Run) -> None:
    """Product code that turns on node's runner gets no green report."""
    code = f"{NODE_ATTACKS[name]}\nexport const add = () => 0;\n"
    report = await run({"calc.mjs": code, "calc.test.mjs": NODE_TEST}, runner="node")
    told = [each for each in report.results.values() if each.outcome == "passed" and " > " in each.id]
    assert not (report.is_complete and len(told) == 2 and not new_failures(report, None)), report


@pytest.mark.slow
@needs_node
async def test_node_is_watched_for_what_is_done_to_one_test_alone(run: Run) -> None:
    """An assertion that lets the story's values pass lets no canary pass: it is told by its name."""
    code = (
        "import assert from 'node:assert';\nimport { syncBuiltinESMExports } from 'node:module';\n"
        "const old = assert.strictEqual;\n"
        "assert.strictEqual = (is, wanted, ...more) => { if (wanted !== 3) old(is, wanted, ...more); };\n"
        "const equal = assert.equal;\nassert.equal = (is, wanted) => { if (wanted !== 4) equal(is, wanted); };\n"
        "syncBuiltinESMExports();\nexport const add = () => 0;\n"
    )
    report = await run({"calc.mjs": code, "calc.test.mjs": NODE_TEST}, runner="node")
    assert {"assert.strictEqual", "assert.equal"} <= {*report.altered}
    assert [each.id for each in new_failures(report, None)][:1] == ["the test runner"]
    honest = "export const add = (one, two) => one + two;\n"
    report = await run({"calc.mjs": honest, "calc.test.mjs": NODE_TEST}, runner="node")
    assert (report.is_green, report.altered) == (True, ())


NOT_FOUND = {
    "a value that equals all": (
        "class All(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\ndef add(a, b): return All(0)"
    ),
    "an answer for each caller by its name": (
        "import sys\n"
        "def add(a, b):\n"
        "    frame = sys._getframe(1)\n"
        "    return 3 if frame.f_code.co_name == 'test_add' else 4"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_FOUND)
async def test_what_is_not_found(name: str, run: Run) -> None:
    """Code that answers these very tests, and leaves the runner alone, is green here: it is for reviewers to see."""
    report = await run({"calc.py": f"{NOT_FOUND[name]}\n", "test_calc.py": TEST})
    assert (report.is_green, report.altered) == (True, ())


TARGETED = {
    "a plugin for the tests of the story": (
        "import gc, pytest\nfrom _pytest.config import Config\n"
        "class Kind:\n"
        "    @pytest.hookimpl(hookwrapper=True, tryfirst=True)\n"
        "    def pytest_runtest_makereport(self, item):\n"
        "        outcome = yield\n"
        "        if item.name in ('test_add', 'test_more'): outcome.get_result().outcome = 'passed'\n"
        "for each in gc.get_objects():\n"
        "    if type(each) is Config: each.pluginmanager.register(Kind())"
    ),
    "a plugin that says it is a conftest": (
        "import gc, types, pytest\nfrom _pytest.config import Config\n"
        "plugin = types.ModuleType('conftest')\nplugin.__file__ = '/x/conftest.py'\n"
        "def pytest_pyfunc_call(pyfuncitem):\n"
        "    return True if pyfuncitem.name in ('test_add', 'test_more') else None\n"
        "plugin.pytest_pyfunc_call = pytest.hookimpl(tryfirst=True)(pytest_pyfunc_call)\n"
        "for each in gc.get_objects():\n"
        "    if type(each) is Config: each.pluginmanager.register(plugin)"
    ),
    "a runner that spares the tests of the story": (
        "import _pytest.python as p\nold = p.Function.runtest\n"
        "def runtest(self):\n"
        "    if self.name not in ('test_add', 'test_more'): old(self)\n"
        "p.Function.runtest = runtest"
    ),
}


@pytest.mark.parametrize("name", slow_after(1, TARGETED))
async def test_the_runners_functions_are_watched(name: str, run: Run) -> None:
    """A change of the runner that spares the canary is found by the runner's functions, which are others in the end."""
    files = {
        "calc.py": f"{TARGETED[name]}\n{WRONG}",
        "test_calc.py": TEST,
        "conftest.py": "pytest_plugins = ()\n",
    }
    report = await run(files, test_files=("conftest.py", "test_calc.py"))
    assert {each.outcome for each in report.results.values()} == {"passed"}
    assert [each.id for each in new_failures(report, None)] == ["the test runner"]


_BY_THE_FIRST = """
import sys

def add(a, b):
    space = sys._getframe(1).f_globals
    for one in [*space.values(), *vars(space.get("Adding", object)).values()]:
        if getattr(one, "__name__", "") == "test_more":
            one.__code__ = (lambda *any: None).__code__
    return 3
"""
_BY_A_THREAD = """
import sys, threading, time

def replace():
    while True:
        for name, module in [*sys.modules.items()]:
            for one in [*vars(module).values()] if "test_calc" in name else ():
                for each in [one, *(vars(one).values() if isinstance(one, type) else ())]:
                    if getattr(each, "__name__", "").startswith("test_") and hasattr(each, "__code__"):
                        each.__code__ = (lambda *any: None).__code__
        time.sleep(0.001)

threading.Thread(target=replace, daemon=True).start()

def add(a, b):
    time.sleep(0.2)
    return 0
"""
_BY_CONSTANTS = """
import gc, sys

def add(a, b):
    test = sys._getframe(1).f_globals["Adding"].test_more if "Adding" in sys._getframe(1).f_globals else None
    test = test or sys._getframe(1).f_globals["test_more"]
    test.__code__ = test.__code__.replace(co_consts=tuple(3 if each == 4 else each for each in test.__code__.co_consts))
    return 3
"""


@pytest.mark.parametrize("runner", ["pytest", "unittest"])
@pytest.mark.parametrize(
    "code", slow_after(1, [_BY_THE_FIRST, _BY_A_THREAD, _BY_CONSTANTS]), ids=["first", "thread", "constants"]
)
async def test_code_that_replaces_tests_is_found_when_each_is_run_alone(
    code: str, runner: str, run: Run
) -> None:
    """Whatever the suite said: alone, a test has no other before it, and its code is that of its file to the end."""
    files = {"calc.py": code, "test_calc.py": TEST if runner == "pytest" else CASE}
    name = "test_calc.py::test_more" if runner == "pytest" else "test_calc.Adding.test_more"
    report = await run(files, runner=runner, canary=False, only=name, test_files=("test_calc.py",))
    (result,) = report.results.values()
    assert result.outcome != "passed" or report.altered
    honest = {**files, "calc.py": "def add(a, b): return a + b\n"}
    report = await run(honest, runner=runner, canary=False, only=name, test_files=("test_calc.py",))
    assert (report.is_green, report.altered, [*report.results]) == (True, (), [name])


DECORATED = """
import functools
import pytest
from calc import add
from unittest import mock

def quiet(test):
    def inner(*args):
        test(*args)
    inner.__name__ = test.__name__
    return inner

@pytest.fixture
def one(): return 1

@pytest.mark.parametrize("other", [1, 2])
@mock.patch("calc.more", 1)
def test_add(one, other): assert add(one, other) == one + other

test_made = functools.partial(lambda: None)

@quiet
def test_quiet(): assert add(1, 1) == 2

class TestKind:
    def test_method(self): assert add(2, 2) == 4
"""


@pytest.mark.slow
async def test_tests_that_are_decorated_are_as_written_too(run: Run) -> None:
    """Fixtures, parameters, patches, and decorators of the test file itself change nothing that counts."""
    files = {"calc.py": "more = 0\ndef add(a, b): return a + b\n", "test_calc.py": DECORATED}
    for name, cases in (("test_add", ["[1]", "[2]"]), ("test_quiet", [""]), ("TestKind::test_method", [""])):
        only = f"test_calc.py::{name}"
        report = await run(files, canary=False, only=only, test_files=("test_calc.py",))
        ids = [f"{only}{case}" for case in cases]
        assert (report.is_green, report.altered, [*report.results]) == (True, (), ids), report


async def test_a_runner_of_its_own(run: Run) -> None:
    """A module that stands in the real runner's place reports nothing, and is not believed."""
    report = await run({"pytest.py": "print('2 passed')\n", "calc.py": WRONG, "test_calc.py": TEST})
    assert (report.is_complete, report.exit_code) == (False, 0)
