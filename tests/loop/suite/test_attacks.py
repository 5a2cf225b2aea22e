"""Product code that tries to make a red suite look green. What is found here, and what is not, is in the docs."""

from functools import partial

import pytest
from tests.cases import slow_after
from tests.loop.suite.conftest import PYTEST, Run, needs_node

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


_REPLACED_HOOK = """
def pytest_pyfunc_call(pyfuncitem):
    return True if pyfuncitem.name in ("test_add", "test_more") else None
"""
TARGETED |= {
    "a hook function of an installed plugin": (
        f"import anyio.pytest_plugin\n{_REPLACED_HOOK}\n"
        "anyio.pytest_plugin.pytest_pyfunc_call.__code__ = pytest_pyfunc_call.__code__"
    ),
    "a hook function for an installed plugin": (
        f"import gc\nfrom _pytest.config import Config\n{_REPLACED_HOOK}\n"
        "for each in gc.get_objects():\n"
        "    if type(each) is Config:\n"
        "        caller = each.pluginmanager.hook.pytest_pyfunc_call\n"
        "        [one] = [one for one in caller.get_hookimpls() if one.plugin_name == 'anyio.pytest_plugin']\n"
        "        one.plugin.pytest_pyfunc_call = pytest_pyfunc_call\n"
        "        other = type(one)(one.plugin, one.plugin_name, pytest_pyfunc_call, {**one.opts, 'trylast': False})\n"
        "        caller._add_hookimpl(other)"
    ),
    "a function of an installed package by another name": (
        "import gc, tempfile, types\nfrom _pytest.config import Config\n"
        "plugin = types.ModuleType('directories')\n"
        "plugin.pytest_pyfunc_call = tempfile.gettempdir\n"
        "for each in gc.get_objects():\n"
        "    if type(each) is Config: each.pluginmanager.register(plugin)"
    ),
    "a hook function of the runner with other global variables": (
        "import gc, types, _pytest.unittest\nfrom _pytest.config import Config\n"
        "class Calm:\n"
        "    excinfo = None\n"
        "    __class_getitem__ = classmethod(lambda cls, kind: cls)\n"
        "    from_call = classmethod(lambda cls, *any: cls)\n"
        "def is_of_story(value, kind):\n"
        "    trace, names = getattr(value, '__traceback__', None), set()\n"
        "    while trace: trace, _ = trace.tb_next, names.add(trace.tb_frame.f_code.co_name)\n"
        "    return bool(names & {'test_add', 'test_more'})\n"
        "names = {'sys': types.SimpleNamespace(modules={'unittest': types.SimpleNamespace(SkipTest=None)})}\n"
        "names |= {'isinstance': is_of_story, 'TestCaseFunction': None, 'CallInfo': Calm, 'skip': None}\n"
        "code = _pytest.unittest.pytest_runtest_makereport.__code__\n"
        "plugin = types.ModuleType('timeouts')\n"
        "plugin.pytest_runtest_makereport = types.FunctionType(code, names)\n"
        "for each in gc.get_objects():\n"
        "    if type(each) is Config: each.pluginmanager.register(plugin)"
    ),
}
CONFTESTS = {
    "collected": "pytest_plugins = ()\n",
    "loaded by conftest": "import calc\n",
    "without a conftest": None,
}


@pytest.mark.parametrize("conftest", slow_after(2, CONFTESTS))
@pytest.mark.parametrize("name", slow_after(1, TARGETED))
async def test_the_runners_functions_are_watched(name: str, conftest: str, run: Run) -> None:
    """A change of the runner that spares the canary is found by its functions, plugins and hook functions.

    Whenever the product is loaded: with the tests, or by a `conftest.py` before them.
    """
    text = CONFTESTS[conftest]
    files = {"calc.py": f"{TARGETED[name]}\n{WRONG}", "test_calc.py": TEST}
    files |= {} if text is None else {"conftest.py": text}
    report = await run(files, command=f"{PYTEST} -p anyio.pytest_plugin", test_files=(*files,)[1:])
    assert {each.outcome for each in report.results.values()} == {"passed"}
    assert [each.id for each in new_failures(report, None)] == ["the test runner"]


async def test_hook_functions_of_a_conftest_are_its_own(run: Run) -> None:
    """Product code that a `conftest.py` imports gives it no hook function that its file does not name."""
    code = f"import sys\n{_REPLACED_HOOK}\nsys.modules['conftest'].pytest_pyfunc_call = pytest_pyfunc_call\n"
    files = {"calc.py": code + WRONG, "test_calc.py": TEST, "conftest.py": "import calc\n"}
    report = await run(files, test_files=("conftest.py", "test_calc.py"))
    assert {each.outcome for each in report.results.values()} == {"passed"}
    assert [each.id for each in new_failures(report, None)] == ["the test runner"]


_WORKERS = {
    **TARGETED,
    "a worker that ends before it compares": (
        f"import os, time, threading, gc, pytest\nfrom _pytest.config import Config\n{_REPLACED_HOOK}\n"
        "class Kind:\n"
        "    pytest_pyfunc_call = pytest.hookimpl(tryfirst=True)(lambda self, pyfuncitem: "
        "pytest_pyfunc_call(pyfuncitem))\n"
        "    def pytest_sessionfinish(self): os._exit(0)\n"
        "if 'PYTEST_XDIST_WORKER' in os.environ:\n"
        "    for each in gc.get_objects():\n"
        "        if type(each) is Config: each.pluginmanager.register(Kind())"
    ),
}


@pytest.mark.parametrize("name", slow_after(1, _WORKERS))
async def test_the_functions_of_workers_are_watched(name: str, run: Run) -> None:
    """What xdist's workers find changed is reported, and a worker that ends before it has compared is."""
    files = {"calc.py": f"{_WORKERS[name]}\n{WRONG}", "test_calc.py": TEST}
    command = f"{PYTEST} -p anyio.pytest_plugin -p xdist.plugin -n 1"
    report = await run(files, command=command, test_files=("test_calc.py",))
    assert {each.outcome for each in report.results.values()} == {"passed"}
    assert [each.id for each in new_failures(report, None)] == ["the test runner"]
    assert ("a worker of xdist, which sent no comparison" in report.altered) == (name not in TARGETED)


_PLUGIN = """
import pytest

@pytest.fixture
def three(): return 3

def pytest_report_header(): return "three"
"""
_CONFTEST = """
import pytest
from calc import add

pytest_plugins = ["calc.fixtures"]

class Counter:
    def pytest_runtest_logreport(self, report):
        assert report.nodeid

class Fixtures:
    @pytest.fixture
    def two(self): return add(1, 1)

def pytest_configure(config):
    config.pluginmanager.register(Counter())
    config.pluginmanager.register(Fixtures())
"""


@pytest.mark.parametrize(
    "options", slow_after(1, ["", " -p xdist.plugin -n 1"]), ids=["one process", "xdist"]
)
async def test_plugins_of_the_tests_are_the_tests_own(options: str, run: Run) -> None:
    """What a `conftest.py` names in `pytest_plugins`, and objects that it registers, are as the tests say."""
    test = "from calc import add\ndef test_add(two, three): assert add(two, 1) == three\n"
    files = {
        "calc/__init__.py": "def add(a, b): return a + b\n",
        "calc/fixtures.py": _PLUGIN,
        "conftest.py": _CONFTEST,
        "test_calc.py": test,
    }
    for only in (None, "test_calc.py::test_add"):
        command = f"{PYTEST} -p anyio.pytest_plugin -p pytest_timeout{options}"
        report = await run(
            files, command=command, only=only, canary=only is None, test_files=("conftest.py", "test_calc.py")
        )
        assert (report.is_green, report.altered) == (True, ()), report


_PYTEST_MOCK = """
import unittest.mock

_mock_module_originals = {}

def wrap_assert_called(*args): _mock_module_originals["assert_called"](*args)

def pytest_configure(config):
    _mock_module_originals["assert_called"] = unittest.mock.NonCallableMock.assert_called
    unittest.mock.NonCallableMock.assert_called = wrap_assert_called
"""
_MOCK_ATTACKS = {
    "other original": (
        "import pytest_mock.plugin\npytest_mock.plugin._mock_module_originals['assert_called'] = lambda *any: None"
    ),
    "other wrapper": "import unittest.mock as m\nm.NonCallableMock.assert_called = lambda *any: None",
    "other wrapper of the same package": (
        "import unittest.mock as m, pytest_mock.plugin as p\nm.NonCallableMock.assert_called = p.pytest_configure"
    ),
}


@pytest.mark.parametrize("attack", slow_after(1, [None, *_MOCK_ATTACKS]))
async def test_wrappers_of_pytest_mock_are_the_packages_own(attack: str | None, run: Run) -> None:
    """pytest-mock wraps the assertions of mocks in every run. What it wraps must still be the original."""
    files = {
        "site-packages/pytest_mock/__init__.py": "",
        "site-packages/pytest_mock/plugin.py": _PYTEST_MOCK,
        "calc.py": f"{_MOCK_ATTACKS.get(attack or '', '')}\ndef add(a, b): return a + b\n",
        "test_calc.py": TEST,
    }
    command = f"PYTHONPATH=site-packages:$PYTHONPATH {PYTEST} -p pytest_mock.plugin"
    report = await run(files, command=command, test_files=("test_calc.py",))
    assert {each.outcome for each in report.results.values()} == {"passed"}
    assert report.altered == (() if attack is None else ("unittest.mock.NonCallableMock.assert_called",))


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


@pytest.mark.parametrize("runner", ["pytest", "unittest", "xdist"])
@pytest.mark.parametrize(
    "code", slow_after(1, [_BY_THE_FIRST, _BY_A_THREAD, _BY_CONSTANTS]), ids=["first", "thread", "constants"]
)
async def test_code_that_replaces_tests_is_found_when_each_is_run_alone(
    code: str, runner: str, run: Run
) -> None:
    """Whatever the suite said: alone, a test has no other before it, and its code is that of its file to the end."""
    files = {"calc.py": code, "test_calc.py": CASE if runner == "unittest" else TEST}
    name = "test_calc.Adding.test_more" if runner == "unittest" else "test_calc.py::test_more"
    command = f"{PYTEST} -p xdist.plugin -n 1" if runner == "xdist" else None
    run = partial(
        run,
        runner="unittest" if runner == "unittest" else "pytest",
        command=command,
        canary=False,
        only=name,
        test_files=("test_calc.py",),
    )
    report = await run(files)
    (result,) = report.results.values()
    assert result.outcome != "passed" or report.altered
    honest = {**files, "calc.py": "def add(a, b): return a + b\n"}
    report = await run(honest)
    assert (report.is_green, report.altered, [*report.results]) == (True, (), [name])


_AFTER_LOADING = """
import os, sys

def see(frame, event, value):
    if event == "return" and frame.f_code.co_name == "<module>":
        if os.path.basename(frame.f_code.co_filename) == "test_calc.py":
            sys.setprofile(None)
            change(frame.f_globals)

sys.setprofile(see)
more = 0

def add(a, b):
    return 0
"""
_PARAMETERS = """
import pytest
from calc import add

@pytest.mark.parametrize("a", [1, 2])
def test_more(a): assert add(a, 2) == a + 2
"""
_PATCHED = """
from unittest import mock
from calc import add

@mock.patch("calc.more", 1)
def test_more(): assert add(2, 2) == 4
"""
_PATCHED_CLASS = """
import unittest
from unittest import mock
from calc import add

@mock.patch.dict("os.environ", {"A": "1"})
class Adding(unittest.TestCase):
    def test_more(self): self.assertEqual(add(2, 2), 4)
"""
_PATCHED_METHOD = """
import unittest
from unittest import mock
from calc import add

class Adding(unittest.TestCase):
    @mock.patch("calc.more", 1)
    def test_more(self): self.assertEqual(add(2, 2), 4)
"""
_PLAIN_CLASS = """
import unittest
from calc import add

class Adding(unittest.TestCase):
    def test_more(self):
        total = add(2, 2)
        self.assertEqual(total, 4)
"""
_RAISES = """
from pytest import raises
from calc import add

def test_more():
    with raises(ValueError): add(2, 2)
"""
DECORATED_ATTACKS = {
    "code of a function with parameters": (
        _PARAMETERS,
        "def change(found): found['test_more'].__code__ = (lambda a: None).__code__",
    ),
    "code below a patch": (
        _PATCHED,
        "def change(found): found['test_more'].__wrapped__.__code__ = (lambda: None).__code__",
    ),
    "wrapper that says what it wraps": (
        _PATCHED,
        (
            "import functools\n"
            "def change(found): found['test_more'] = functools.wraps(found['test_more'].__wrapped__)(lambda: None)"
        ),
    ),
    "context manager of the product": (
        _PATCHED,
        (
            "import contextlib\n"
            "@contextlib.contextmanager\n"
            "def calm():\n    try: yield\n    except BaseException: pass\n"
            "def change(found): found['test_more'] = calm()(found['test_more'])"
        ),
    ),
    "the same code with other globals": (
        _PATCHED,
        (
            "import types\n"
            "def change(found):\n"
            "    inner = found['test_more'].__wrapped__\n"
            "    other = types.FunctionType(inner.__code__, {'add': lambda a, b: a + b})\n"
            "    found['test_more'].__closure__[0].cell_contents = found['test_more'].__wrapped__ = other"
        ),
    ),
    "code of an installed function that says what it wraps": (
        _PATCHED,
        (
            "import types, unittest\n"
            "def change(found):\n"
            "    other = types.FunctionType(unittest.TestCase.setUp.__code__, {}, 'test_more', (None,))\n"
            "    other.__wrapped__ = found['test_more'].__wrapped__\n"
            "    found['test_more'] = other"
        ),
    ),
    "assertion that the test file imports": (
        _RAISES,
        "import contextlib\ndef change(found): found['raises'] = lambda *any: contextlib.nullcontext()",
    ),
    "built-in function": (
        "from calc import add\ndef test_more(): assert abs(add(2, 2)) == 4\n",
        "def change(found): found['abs'] = lambda any: 4",
    ),
    "method of a decorated class": (
        _PATCHED_CLASS,
        "def change(found): found['Adding'].test_more = lambda self: None",
    ),
    "method of a base class": (
        _PATCHED_CLASS,
        (
            "def change(found):\n"
            "    class Other(found['unittest'].TestCase): test_more = lambda self: None\n"
            "    del found['Adding'].test_more\n"
            "    found['Adding'].__bases__ = (Other,)"
        ),
    ),
    "assertion of a decorated class": (
        _PATCHED_CLASS,
        "def change(found): found['Adding'].assertEqual = found['unittest'].TestCase.addTypeEqualityFunc",
    ),
    "assertion as a static method": (
        _PLAIN_CLASS,
        "def change(found): found['Adding'].assertEqual = staticmethod(lambda *any: None)",
    ),
    "assertion that is no function": (
        _PLAIN_CLASS,
        (
            "class Calm:\n    def __call__(self, *any): pass\n"
            "def change(found): found['Adding'].assertEqual = Calm()"
        ),
    ),
    "other base class": (
        _PLAIN_CLASS,
        (
            "def change(found):\n"
            "    class Calm(found['unittest'].TestCase): assertEqual = lambda *any: None\n"
            "    found['Adding'].__bases__ = (Calm,)"
        ),
    ),
    "how attributes are found": (
        _PLAIN_CLASS,
        (
            "class Calm:\n"
            "    def __get__(self, case, kind): return lambda name: self.give(case, name)\n"
            "    def give(self, case, name):\n"
            "        is_calm = name == 'assertEqual' and type(case).__name__ == 'Adding'\n"
            "        return (lambda *any: None) if is_calm else object.__getattribute__(case, name)\n"
            "def change(found): found['unittest'].TestCase.__getattribute__ = Calm()"
        ),
    ),
    "class of the instance": (
        _PLAIN_CLASS,
        (
            "def change(found):\n"
            "    class Calm(found['Adding']): assertEqual = lambda *any: None\n"
            "    def add(a, b): sys._getframe(1).f_locals['self'].__class__ = Calm\n"
            "    found['add'] = add"
        ),
    ),
    "class of the class": (
        _PLAIN_CLASS,
        (
            "def change(found):\n"
            "    old = found['Adding']\n"
            "    class Calm(old): assertEqual = lambda *any: None\n"
            "    Calm.__module__, Calm.__qualname__ = old.__module__, old.__qualname__\n"
            "    class Kind(type):\n"
            "        def __call__(self, *any): return type.__call__(Calm, *any)\n"
            "    found['Adding'] = Kind('Adding', old.__bases__, dict(vars(old)))"
        ),
    ),
    "how the tests of the module are loaded": (
        _PLAIN_CLASS,
        (
            "def change(found):\n"
            "    class Adding(found['unittest'].TestCase): test_more = lambda self: None\n"
            "    Adding.__module__, Adding.__qualname__ = 'test_calc', 'Adding'\n"
            "    found['load_tests'] = lambda loader, tests, pattern: loader.suiteClass([Adding('test_more')])"
        ),
    ),
    "directories of packages": (
        _PATCHED,
        (
            "import functools\n"
            "def change(found):\n"
            "    [one] = [each for name, each in sys.modules.items() if name.endswith('.integrity')]\n"
            "    one._PACKAGES = frozenset([os.path.realpath('..'), '/tmp'])\n"
            "    open('/tmp/lib.py', 'w').write('def outer(test):\\n    def more(): test\\n    return more\\n')\n"
            "    sys.path.append('/tmp')\n"
            "    import lib\n"
            "    found['test_more'] = lib.outer(found['test_more'])"
        ),
    ),
    "assertion of the instance": (
        _PLAIN_CLASS,
        (
            "def change(found):\n"
            "    def add(a, b): sys._getframe(1).f_locals['self'].assertEqual = lambda *any: None\n"
            "    found['add'] = add"
        ),
    ),
    "installed function in place of a decorated method": (
        _PATCHED_METHOD,
        "def change(found): found['Adding'].test_more = found['unittest'].TestCase.setUp",
    ),
    "code that lies outside of the project": (
        _PATCHED_METHOD,
        (
            "def change(found):\n"
            "    open('/tmp/lib.py', 'w').write('def test_more(self): pass')\n"
            "    sys.path.append('/tmp')\n"
            "    import lib\n"
            "    found['Adding'].test_more = lib.test_more"
        ),
    ),
    "directory that is called nearly as that of packages": (
        _PATCHED_METHOD,
        (
            "def change(found):\n"
            "    os.mkdir('my-site-packages')\n"
            "    open('my-site-packages/tool.py', 'w').write('def test_more(self): pass')\n"
            "    sys.path.append('my-site-packages')\n"
            "    import tool\n"
            "    found['Adding'].test_more = tool.test_more"
        ),
    ),
}


_DECORATED_CLASS = """
import unittest
from calc import add

@unittest.skipIf(False, "never")
class Adding(unittest.TestCase):
    def test_more(self): self.assertEqual(add(2, 2), 4)
"""
_HELPERS = """
import contextlib
from calc import add

def call(function): function()

def once(function):
    def inner(): call(function)
    return inner

class TestAdd:
    @staticmethod
    def check(a, b, total): assert add(a, b) == total

    @contextlib.contextmanager
    def equal(self, total):
        found = []
        yield found
        assert found == [total]

    @property
    def four(self):
        assert add(2, 2) == 4
        return 4

@once
def test_more(): %s
"""
_CONDITIONAL = """
import sys
from calc import add

if sys.version_info:
    def test_more(): assert add(2, 2) == 4
"""
_MARKED = """
import pytest
from calc import add

def test_more(): assert add(2, 2) == 4
test_more = pytest.mark.filterwarnings("ignore")(test_more)
"""
DECORATED_ATTACKS |= {
    "bases of a decorated class": (
        _DECORATED_CLASS,
        (
            "import unittest\n"
            "class Calm(unittest.TestCase):\n    def assertEqual(self, *any): pass\n"
            "def change(found): found['Adding'].__bases__ = (Calm,)"
        ),
    ),
    "method from text in a decorated class": (
        _DECORATED_CLASS,
        (
            "TEXT = 'def __getattribute__(self, name): return (lambda *any: None) if name == \\'assertEqual\\' else '\n"
            "TEXT += 'object.__getattribute__(self, name)'\n"
            "def change(found):\n    made = {}\n    exec(TEXT, made)\n"
            "    found['Adding'].__getattribute__ = made['__getattribute__']"
        ),
    ),
    "patch that is none": (
        _PATCHED,
        (
            "class Calm:\n    attribute_name, new = None, 'x'\n    def __enter__(self): return self\n"
            "    def __exit__(self, *any): return True\n"
            "def change(found): found['test_more'].patchings = [*getattr(found['test_more'], 'patchings', []), Calm()]"
        ),
    ),
    "static method of a helper": (
        _HELPERS % "TestAdd.check(2, 2, 4)",
        (
            "import functools\n"
            "def change(found): found['TestAdd'].check = staticmethod(functools.partial(lambda *any: None))"
        ),
    ),
    "context manager of a helper": (
        _HELPERS % "exec('with TestAdd().equal(4) as found: found.append(add(2, 2))')",
        (
            "import contextlib\n@contextlib.contextmanager\ndef equal(self, total): yield []\n"
            "def change(found): found['TestAdd'].equal = equal"
        ),
    ),
    "property of a helper": (
        _HELPERS % "TestAdd().four",
        "def change(found): found['TestAdd'].four = property(lambda self: 0)",
    ),
    "wrapper with other globals": (
        _HELPERS % "TestAdd.check(2, 2, 4)",
        (
            "import types\n"
            "def change(found):\n    old = found['test_more']\n"
            "    other = {**found, 'call': lambda *any: None}\n"
            "    found['test_more'] = types.FunctionType(old.__code__, other, 'test_more', None, old.__closure__)"
        ),
    ),
    "definition under a condition": (_CONDITIONAL, "def change(found): found['test_more'] = lambda: None"),
    "definition that is marked later": (_MARKED, "def change(found): found['test_more'] = lambda: None"),
}


@pytest.mark.parametrize("name", slow_after(2, DECORATED_ATTACKS))
async def test_decorated_tests_are_compared_with_their_files(name: str, run: Run) -> None:
    """A decorated test leads to its file's own code, and around that code there is none of the product's."""
    tests, attack = DECORATED_ATTACKS[name]
    runner = "unittest" if "unittest.TestCase" in tests else "pytest"
    only = "test_calc.Adding.test_more" if runner == "unittest" else "test_calc.py::test_more"
    files = {"calc.py": attack + _AFTER_LOADING, "test_calc.py": tests}
    report = await run(files, runner=runner, canary=False, only=only, test_files=("test_calc.py",))
    assert {each.outcome for each in report.results.values()} == {"passed"}, report
    assert report.altered


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


_HONEST = """
import enum, functools, unittest
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from unittest import mock
import pytest
from hypothesis import given, settings, strategies as st
from calc import add, careful

@dataclass(order=True)
class Point:
    x: int
    def twice(self): return Point(2 * self.x)

class Pair(NamedTuple):
    x: int
    def twice(self): return 2 * self.x

class Colour(enum.Enum):
    RED = 1
    def name_of(self): return self.name

class Sized(Protocol):
    def size(self): ...

@functools.lru_cache()
def two(): return 2

@pytest.fixture
def three(): return 3

@pytest.fixture
def test_client(): return 3

@careful
def test_careful(): assert add(1, 1) == 2

if two:
    def test_if(): assert add(1, 1) == 2
else:
    def test_if(): pass

try:
    import calc.absent
except ImportError:
    def test_else(): pass

def test_marked(): assert add(1, 1) == 2
test_marked = pytest.mark.filterwarnings("ignore")(test_marked)

def test_wrapped(): assert add(1, 1) == 2
test_wrapped = careful(test_wrapped)

class Made:
    @property
    def size(self): return self._size
    @size.setter
    def size(self, value): self._size = value
    @functools.cached_property
    def cached(self): return 1
    @staticmethod
    @functools.lru_cache()
    def stored(): return 1
    @classmethod
    def of(cls): return cls()

@settings(max_examples=5)
@given(st.integers())
def test_given(a): assert add(a, 0) == a

@pytest.mark.skipif(False, reason="")
@mock.patch("calc.more", 1)
@pytest.mark.parametrize("a", [1])
def test_both(a, three): assert add(a, two()) == three

def expand(values):
    def accept(test):
        space = __import__("sys")._getframe(1).f_locals
        for number, value in enumerate(values):
            def make(value=value):
                @functools.wraps(test)
                def inner(self): return test(self, value)
                del inner.__wrapped__
                return inner
            space["%s_%d" % (test.__name__, number)] = make()
    return accept

@mock.patch.dict("os.environ", {"A": "1"})
class TestKind(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.server = print

    def test_plain(self): self.assertEqual(Point(add(1, 1)), Point(1).twice())

    @expand([1, 2])
    def test_each(self, value): self.assertEqual(add(value, 1), value + 1)

    @given(st.integers())
    def test_property(self, a): self.assertEqual(add(a, 0), a)

    @mock.patch("calc.more", 1)
    @mock.patch("calc.careful")
    def test_mock(self, careful): self.assertEqual(add(1, 1), 2)

class TestFurther(TestKind):
    def test_own(self): self.assertTrue(True)
"""


@pytest.mark.slow
async def test_honest_decorators_alter_nothing(run: Run) -> None:
    """Whatever decorators of Python, of packages, of the tests and of the product make of tests and their helpers."""
    product = "import functools\nmore = 0\ndef add(a, b): return a + b\n"
    product += (
        "def careful(test):\n    @functools.wraps(test)\n    def inner(): return test()\n    return inner\n"
    )
    files = {"calc.py": product, "test_calc.py": _HONEST}
    report = await run(files, canary=False, only="test_calc.py::test_both", test_files=("test_calc.py",))
    assert (report.is_green, report.altered) == (True, ()), report
    for name in ("test_careful", "test_given", "TestKind::test_each_0", "TestKind::test_property"):
        only = f"test_calc.py::{name}"
        report = await run(files, canary=False, only=only, test_files=("test_calc.py",))
        assert (report.is_green, report.altered, len(report.results)) == (True, (), 1), report


async def test_a_runner_of_its_own(run: Run) -> None:
    """A module that stands in the real runner's place reports nothing, and is not believed."""
    report = await run({"pytest.py": "print('2 passed')\n", "calc.py": WRONG, "test_calc.py": TEST})
    assert (report.is_complete, report.exit_code) == (False, 0)
