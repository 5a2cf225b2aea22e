"""The plugin that reports what pytest does. Loaded by `-p` in PYTEST_ADDOPTS, before any of the project's code."""

import os
import sys
from typing import Any

import pytest

from . import channel, definitions, hooks, integrity

_SETTINGS = channel.settings()
_state: "dict[str, Any]" = {
    "channel": None,
    "before": {},
    "root": "",
    "altered": set(),
    "own": set(),
    "hooks": None,
}

_IS_WORKER = bool(os.environ.get("PYTEST_XDIST_WORKER"))
if _IS_WORKER:
    os.environ["PYTEST_PLUGINS"] = _SETTINGS["plugins"]
else:  # workers report to their controller
    _state["channel"] = channel.Channel(_SETTINGS["socket"])
    _state["channel"].send("begin", runner="pytest")
    # A pytest that a test starts is none of ours.
    os.environ["PYTEST_ADDOPTS"] = _SETTINGS["addopts"]


def _send(kind, **fields):
    if _state["channel"] is not None:
        _state["channel"].send(kind, **fields)


def _named(nodeid):
    """(id, file) of a node, relative to the workspace whatever pytest's root is."""
    path, separator, rest = nodeid.partition("::")
    file = channel.shown(os.path.join(_state["root"], path), _SETTINGS["workspace"])
    return channel.clean(file + separator + rest, 900), file


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    """Record pytest's functions, plugins and hook functions before any `conftest.py` is loaded."""
    _state["before"] = integrity.functions()
    _state["hooks"] = hooks.HookRecord(
        early_config.pluginmanager, _state["before"], _SETTINGS["protected"], _SETTINGS["workspace"]
    )
    if _IS_WORKER and _SETTINGS["only"]:
        # Workers ignore `--assert=plain` in PYTEST_ADDOPTS, and rewritten code would differ from its file.
        sys.meta_path[:] = [
            each for each in sys.meta_path if not type(each).__module__.startswith("_pytest.")
        ]
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """All tests are to be run, whatever fails."""
    _state["root"] = str(config.rootdir)
    config.option.maxfail = 0
    config.option.continue_on_collection_errors = True


if int(pytest.__version__.split(".")[0]) >= 7:  # before, the argument has another name

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(collection_path):
        """For one test alone, no other file with tests is loaded."""
        wanted, name = _SETTINGS["only"].split("::")[0], collection_path.name
        if not wanted or not name.endswith(".py") or name in ("conftest.py", "__init__.py"):
            return None
        return True if channel.shown(str(collection_path), _SETTINGS["workspace"]) != wanted else None


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put a canary at the end of each module, under all that holds for the tests there."""
    yield
    if _SETTINGS["only"]:
        items[:] = [item for item in items if _named(item.nodeid)[0].split("[")[0] == _SETTINGS["only"]]
    if not _SETTINGS["canary"]:
        return
    last = {}
    for item in items:
        module = item.getparent(pytest.Module)
        if module is not None:
            last[module] = item
    ends = {id(item): module for module, item in last.items()}
    withcanaries = []
    for item in items:
        if not _SETTINGS["only_canary"]:
            withcanaries.append(item)
        if id(item) in ends:
            withcanaries.append(_canary(ends[id(item)]))
    items[:] = withcanaries


def _canary(module):
    def test():
        integrity.fail_in_every_way([lambda: pytest.fail("must fail"), _raise_nothing])

    return pytest.Function.from_parent(module, name=_SETTINGS["canary"], callobj=test)


def _raise_nothing():
    with pytest.raises(ValueError):
        pass


def pytest_collection_finish(session):
    """What is going to be run."""
    for item in session.items:
        _collected(item.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes():
    """Workers are not given the options of the environment."""
    os.environ["PYTEST_PLUGINS"] = ",".join(filter(None, (_SETTINGS["plugins"], __name__)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids):
    """The same, where workers collect."""
    for nodeid in ids:
        _collected(nodeid)


def _collected(nodeid):
    name, file = _named(nodeid)
    _send("collected", id=name, file=file)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Compare the code of a test that is run alone with its file, before and after."""
    _compare(item)
    yield
    _compare(item)


def _compare(item):
    if not _SETTINGS["only"]:
        return
    _state["altered"].update(definitions.unlike_their_files(_SETTINGS["test_files"], _SETTINGS["workspace"]))
    if isinstance(item, pytest.Function):
        owner = item.cls or item.module
        defined = getattr(owner, item.originalname or item.name, None)
        run = getattr(item.obj, "__func__", item.obj)
        if run is not getattr(defined, "__func__", defined) or vars(item).get("runtest"):
            _state["altered"].add("the function of %s" % _named(item.nodeid)[0])
        if item.cls is not None and getattr(item, "instance", None) is not None:
            found = definitions.replaced_on(item.instance, item.cls, _SETTINGS["workspace"])
            _state["altered"].update(found)
    if integrity.is_traced_by(_SETTINGS["workspace"]):
        _state["altered"].add("a trace function")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(call):
    """Keep what was raised with the report, where workers' reports carry it too."""
    outcome = yield
    if call.excinfo is not None:
        outcome.get_result().ringfence_cause = channel.cause(call.excinfo.value, _SETTINGS["workspace"])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report():
    """The same for a file that could not be loaded."""
    outcome = yield
    report = outcome.get_result()
    raised = getattr(getattr(report, "call", None), "excinfo", None)
    if raised is not None:
        error = raised.value
        report.ringfence_cause = channel.cause(error.__cause__ or error, _SETTINGS["workspace"])


def pytest_collectreport(report):
    """A file that could not be loaded, or that is skipped as a whole."""
    if report.outcome != "passed":
        _result(report, "error" if report.outcome == "failed" else "skipped")


def pytest_runtest_logreport(report):
    """One phase of one test."""
    if report.outcome == "failed":
        _result(report, "failed" if report.when == "call" else "error")
    elif report.outcome == "skipped" or (report.outcome == "passed" and report.when == "call"):
        _result(report, report.outcome)


def _result(report, outcome):
    name, file = _named(report.nodeid)
    detail = "" if outcome == "passed" else report.longreprtext
    if outcome in ("failed", "error"):
        detail = "\n".join([*("%s:\n%s" % section for section in report.sections), detail])
    cause = getattr(report, "ringfence_cause", None) if outcome != "passed" else None
    _send("result", id=name, outcome=outcome, file=file, detail=channel.clean(detail), cause=cause)


# xdist sends a worker's output in a wrapper of its own, inside which the output must be complete.
@pytest.hookimpl(hookwrapper=True, tryfirst=not _IS_WORKER, trylast=_IS_WORKER)
def pytest_sessionfinish(session):
    """Report what was changed. A worker sends it to its controller."""
    yield
    found = [*integrity.altered(_state["before"]), *_state["hooks"].unexpected()]
    changed = sorted({*found, *_state["altered"]})
    own = sorted({*integrity.altered_by(_SETTINGS["workspace"], _state["before"]), *_state["own"]})
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["ringfence_altered"], output["ringfence_own"] = changed, own
    _send("altered", names=changed, own=own)
    _send("end", exit=int(session.exitstatus))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over what a worker found changed. A worker that crashed has compared nothing."""
    output = getattr(node, "workeroutput", {})
    _state["altered"].update(output.get("ringfence_altered", ["a worker of xdist, which sent no comparison"]))
    _state["own"].update(output.get("ringfence_own", ()))
