"""Reports each test's result to the host: a pytest plugin, which PYTEST_ADDOPTS loads before any code of the project.

With xdist, the workers collect and run the tests, and the controller reports: it receives the workers' results in their
reports, and what they found altered in their output at the end.
"""

import os
import sys

import pytest

from . import channel, definitions, hooks, integrity

_SETTINGS = channel.settings()
_WORKSPACE = _SETTINGS["workspace"]
_IS_WORKER = bool(os.environ.get("PYTEST_XDIST_WORKER"))
_MAX_NAME_CHARS = 900


class _State:
    """What this process has recorded and found.

    Attributes:
        channel: The connection to the host; None in a worker of xdist.
        root: pytest's root directory, which the ids of tests are relative to.
        functions: The runner's functions before any code of the project was loaded.
        hooks: pytest's plugins and hook functions at that time.
        altered: Names of what was found altered while tests ran, here and in workers.
        altered_by_project: Names of functions that code of the workspace replaced in workers.
    """

    def __init__(self):
        self.channel = None
        self.root = ""
        self.functions = {}
        self.hooks = None
        self.altered = set()
        self.altered_by_project = set()


_STATE = _State()

if _IS_WORKER:
    os.environ["PYTEST_PLUGINS"] = _SETTINGS["plugins"]
else:
    _STATE.channel = channel.Channel(_SETTINGS["socket"])
    _STATE.channel.send("begin", runner="pytest")
    # A pytest that a test starts must not load this plugin.
    os.environ["PYTEST_ADDOPTS"] = _SETTINGS["addopts"]


def _send(kind, **fields):
    if _STATE.channel is not None:
        _STATE.channel.send(kind, **fields)


def _id_and_file(nodeid):
    """Return the id of a test and its file, both relative to the workspace and not to pytest's root directory."""
    path, separator, rest = nodeid.partition("::")
    file = channel.shown(os.path.join(_STATE.root, path), _WORKSPACE)
    return channel.clean(file + separator + rest, _MAX_NAME_CHARS), file


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    """Record pytest's functions, plugins and hook functions before any `conftest.py` is loaded."""
    _STATE.functions = integrity.functions()
    _STATE.hooks = hooks.HookRecord(
        early_config.pluginmanager, _STATE.functions, _SETTINGS["protected"], _WORKSPACE
    )
    if _IS_WORKER and _SETTINGS["only"]:
        # Workers ignore `--assert=plain` in PYTEST_ADDOPTS, and rewritten code would differ from its file.
        sys.meta_path[:] = [
            each for each in sys.meta_path if not type(each).__module__.startswith("_pytest.")
        ]
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Make pytest run all tests, however many fail or cannot be collected."""
    _STATE.root = str(config.rootdir)
    config.option.maxfail = 0
    config.option.continue_on_collection_errors = True


if int(pytest.__version__.split(".")[0]) >= 7:  # earlier versions call the argument `path`

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(collection_path):
        """Ignore all other test files if one test is to run alone, as loading them runs code of the product."""
        wanted, name = _SETTINGS["only"].split("::")[0], collection_path.name
        if not wanted or not name.endswith(".py") or name in ("conftest.py", "__init__.py"):
            return None
        return True if channel.shown(str(collection_path), _WORKSPACE) != wanted else None


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    """Add a canary, a test that must fail, at the end of each module, so that its fixtures and marks apply to it.

    If one test is to run alone, remove all others; the canaries then have a run of their own.
    """
    yield
    if _SETTINGS["only"]:
        items[:] = [item for item in items if _id_and_file(item.nodeid)[0].split("[")[0] == _SETTINGS["only"]]
    if not _SETTINGS["canary"]:
        return
    last_of_module = {}
    for item in items:
        module = item.getparent(pytest.Module)
        if module is not None:
            last_of_module[module] = item
    module_ending_with = {id(item): module for module, item in last_of_module.items()}
    with_canaries = []
    for item in items:
        if not _SETTINGS["only_canary"]:
            with_canaries.append(item)
        if id(item) in module_ending_with:
            with_canaries.append(_canary(module_ending_with[id(item)]))
    items[:] = with_canaries


def _canary(module):
    def test():
        integrity.fail_in_every_way([lambda: pytest.fail("must fail"), _expect_missing_error])

    return pytest.Function.from_parent(module, name=_SETTINGS["canary"], callobj=test)


def _expect_missing_error():
    with pytest.raises(ValueError):
        pass


def pytest_collection_finish(session):
    """Report the tests that are about to run, so that the host notices a test without a result."""
    for item in session.items:
        _send_collected(item.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes():
    """Load this plugin in workers by PYTEST_PLUGINS, as xdist's workers ignore PYTEST_ADDOPTS."""
    os.environ["PYTEST_PLUGINS"] = ",".join(filter(None, (_SETTINGS["plugins"], __name__)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids):
    """Report the tests that a worker is about to run, as the controller itself collects none."""
    for nodeid in ids:
        _send_collected(nodeid)


def _send_collected(nodeid):
    name, file = _id_and_file(nodeid)
    _send("collected", id=name, file=file)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Compare a test that runs alone with its file, before the test and after it."""
    _compare(item)
    yield
    _compare(item)


def _compare(item):
    """Record what differs from the test files, and what would be run in place of a test; only for tests run alone."""
    if not _SETTINGS["only"]:
        return
    running = []
    if isinstance(item, pytest.Function):
        running.append((_id_and_file(item.nodeid)[1], vars(item.module)))
    _STATE.altered.update(definitions.altered_definitions(_SETTINGS["test_files"], _WORKSPACE, running))
    if isinstance(item, pytest.Function):
        owner = item.cls or item.module
        defined = getattr(owner, item.originalname or item.name, None)
        run = getattr(item.obj, "__func__", item.obj)
        if run is not getattr(defined, "__func__", defined) or vars(item).get("runtest"):
            _STATE.altered.add("the function of %s" % _id_and_file(item.nodeid)[0])
        if item.cls is not None and getattr(item, "instance", None) is not None:
            _STATE.altered.update(definitions.altered_attributes(item.instance, item.cls, _WORKSPACE))
    if integrity.is_traced_by(_WORKSPACE):
        _STATE.altered.add("a trace function")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(call):
    """Store what a test raised in its report, which a worker sends to its controller."""
    outcome = yield
    if call.excinfo is not None:
        outcome.get_result().ringfence_cause = channel.cause(call.excinfo.value, _WORKSPACE)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report():
    """Store why a file could not be loaded in its report, which a worker sends to its controller."""
    outcome = yield
    report = outcome.get_result()
    raised = getattr(getattr(report, "call", None), "excinfo", None)
    if raised is not None:
        error = raised.value
        report.ringfence_cause = channel.cause(error.__cause__ or error, _WORKSPACE)


def pytest_collectreport(report):
    """Report a file that could not be loaded, or that is skipped as a whole, as one result for all its tests."""
    if report.outcome != "passed":
        _send_result(report, "error" if report.outcome == "failed" else "skipped")


def pytest_runtest_logreport(report):
    """Report the result of one phase of a test: set-up, call or tear-down. The host keeps the worst of them."""
    if report.outcome == "failed":
        _send_result(report, "failed" if report.when == "call" else "error")
    elif report.outcome == "skipped" or (report.outcome == "passed" and report.when == "call"):
        _send_result(report, report.outcome)


def _send_result(report, outcome):
    name, file = _id_and_file(report.nodeid)
    detail = "" if outcome == "passed" else report.longreprtext
    if outcome in ("failed", "error"):
        detail = "\n".join([*("%s:\n%s" % section for section in report.sections), detail])
    cause = getattr(report, "ringfence_cause", None) if outcome != "passed" else None
    _send("result", id=name, outcome=outcome, file=file, detail=channel.clean(detail), cause=cause)


# A worker's output must be complete before xdist sends it, which it does in a wrapper that is not `tryfirst`.
@pytest.hookimpl(hookwrapper=True, tryfirst=not _IS_WORKER, trylast=_IS_WORKER)
def pytest_sessionfinish(session):
    """Report what was altered, and pytest's exit status. A worker puts what was altered into its output instead."""
    yield
    found = [*integrity.altered_functions(_STATE.functions), *_STATE.hooks.unexpected()]
    altered = sorted({*found, *_STATE.altered})
    replaced = integrity.functions_altered_by_project(_WORKSPACE, _STATE.functions)
    by_project = sorted({*replaced, *_STATE.altered_by_project})
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["ringfence_altered"], output["ringfence_altered_by_project"] = altered, by_project
    _send("altered", names=altered, by_project=by_project)
    _send("end", exit=int(session.exitstatus))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add what a worker found altered. A worker without this output ended before it compared anything."""
    output = getattr(node, "workeroutput", {})
    _STATE.altered.update(output.get("ringfence_altered", ["a worker of xdist, which sent no comparison"]))
    _STATE.altered_by_project.update(output.get("ringfence_altered_by_project", ()))
