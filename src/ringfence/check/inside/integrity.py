"""Compares the functions of the test runner with those that were recorded before any code of the project was loaded.

Also holds the body of the canary: a test that must fail, and fails in every way that a test can.
"""

import functools
import os
import site
import sys
import sysconfig
import types
import unittest

from .channel import clean

_MAX_LISTED = 20
_MAX_NAME_CHARS = 200
SPECIAL = ("__getattribute__", "__getattr__", "__setattr__", "__call__", "__new__", "__init__", "__eq__")
"""Methods that determine how all others are found and called."""
_REPLACED_BY_PYTEST = ("_pytest.config.Config._getini_unknown_type",)  # in its module legacypath
# A test that raises this exception counts as passed. It stops a run at the first failure, which no check needs.
unittest.case._ShouldStop = ()  # type: ignore[attr-defined]
_TRACERS = ("coverage", "_pydevd_bundle")
_WATCHED = ("_pytest", "pytest", "pluggy", "unittest", "contextlib", "pytest_mock", __package__)
_MOCK = "unittest.mock.NonCallableMock."


def _package_directories():
    """Return the directories that Python imports from before code of the project runs, but not that of this package."""
    schemes = [sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    sites = getattr(site, "getsitepackages", list)()  # virtual environments of old versions have none
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = [os.path.realpath(path) for path in (*schemes, *sites, *sys.path) if path]
    return tuple(sorted({path for path in found if path != os.path.realpath(own)}))


_PACKAGES = _package_directories()
_SITES = ("site-packages", "dist-packages")


def is_installed(path, workspace):
    """Whether a file belongs to Python or an installed package; in the workspace, only below `site-packages`."""
    root = os.path.realpath(workspace)
    path = os.path.realpath(path)
    for directory in _PACKAGES:
        is_own = directory == root or directory.startswith(root + os.sep)
        if is_own and os.path.basename(directory) not in _SITES:
            continue
        if path.startswith(directory.rstrip(os.sep) + os.sep):
            return is_own or not path.startswith(root + os.sep)
    return False


def is_installed_module(name, workspace):
    """Whether Python or an installed package has a top-level module of this name."""
    paths = [os.path.join(directory, name) for directory in _PACKAGES]
    return name in sys.builtin_module_names or any(
        is_there(path) and is_installed(path, workspace)
        for path in paths
        for is_there in (os.path.isdir, lambda path: os.path.isfile(path + ".py"))
    )


def fail_in_every_way(further=()):
    """Raise AssertionError if all ways to fail a test do fail; else return, so that the canary passes.

    Args:
        further: Functions that must raise, besides the standard library's.
    """
    case = unittest.TestCase()
    ways = [_assert_equal, lambda: case.assertEqual(1, 2), lambda: case.assertTrue(False), case.fail]
    ways += [lambda: _enter_and_leave(case.assertRaises(ValueError)), _run_failing_case, *further]
    for way in ways:
        try:
            way()
        except BaseException:  # pytest's own failures are not subclasses of Exception
            continue
        return
    raise AssertionError("the canary fails, as it must")


def _assert_equal():
    one, two = 1, 2
    assert one == two


def _enter_and_leave(context):
    with context:
        pass


def _run_failing_case():
    result = unittest.TestResult()
    unittest.FunctionTestCase(_assert_equal).run(result)
    if result.failures and not result.wasSuccessful():
        raise AssertionError("failed, as it must")


def functions():
    """Return the current code of each function of the runner and of this package, by qualified name.

    Of a class, the value holds the class, its bases and its special methods; of a tuple, the tuple.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.split(".")[0] in _WATCHED:
            found[name + ".__class__"] = [type(module)]
            _add_functions(found, name, vars(module))
            for key, value in list(vars(module).items()):
                if isinstance(value, (type, tuple)):
                    found[name + "." + key] = [value, *_bases_and_special_methods(value)]
                if isinstance(value, type) and value.__module__ == name:
                    _add_functions(found, name + "." + key, vars(value))
    return found


def _bases_and_special_methods(value):
    """Return what determines the other attributes of a class; special methods need not be functions."""
    if not isinstance(value, type):
        return []
    return [type(value), *value.__mro__, *(vars(value)[name] for name in SPECIAL if name in vars(value))]


def _add_functions(found, prefix, namespace):
    for key, value in list(namespace.items()):
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "__func__", value)
        if isinstance(value, types.FunctionType):
            found[prefix + "." + key] = codes_of(value)


def codes_of(function):
    """Return the code of a function and of those that it wraps: a decorator's code is the same for all that it wraps."""
    codes = []
    while isinstance(function, types.FunctionType) and len(codes) < 10:
        codes.append(function.__code__)
        function = getattr(function, "__wrapped__", None)
    return codes


def is_same(codes, others):
    """Whether two results of `codes_of` are the same objects. Equal code may be that of another function."""
    return None not in (codes, others) and [id(code) for code in codes] == [id(code) for code in others]


def is_traced_by(workspace):
    """Whether a trace function may skip lines of a test: whether it is neither coverage's nor an installed package's."""
    tracer = sys.gettrace()
    for _ in range(10):
        tracer = tracer.func if isinstance(tracer, functools.partial) else tracer
    if tracer is None:
        return False
    code = getattr(tracer, "__code__", None) or getattr(type(tracer).__call__, "__code__", None)
    if code is None:  # it is written in C
        return type(tracer).__module__.split(".")[0] not in _TRACERS
    return not is_installed(code.co_filename, workspace)


def altered_functions(before):
    """Return the names of functions that are not what `functions` returned before."""
    now = functions()
    names = sorted(
        name
        for name, codes in before.items()
        if not is_same(now.get(name), codes)
        and name not in _REPLACED_BY_PYTEST
        and not _is_wrapped_by_pytest_mock(name, now.get(name), before)
    )
    return [_name_for_report(name) for name in names[:_MAX_LISTED]]


def _is_wrapped_by_pytest_mock(name, codes, before):
    """Whether pytest-mock put its own function, which calls the original, in place of an assertion of mocks."""
    method = name[len(_MOCK) :]
    wrapper = before.get("pytest_mock.plugin.wrap_" + method)
    if not name.startswith(_MOCK) or not is_same(wrapper, codes):
        return False
    originals = getattr(sys.modules.get("pytest_mock.plugin"), "_mock_module_originals", {})
    return is_same(before[name], codes_of(originals.get(method)))


def functions_altered_by_project(workspace, before):
    """Return the names of functions that code of the workspace replaced, other than packages installed there."""
    own = os.path.realpath(workspace) + os.sep
    names = []
    for name, codes in functions().items():
        if name in before and not is_same(codes, before[name]):
            files = [os.path.realpath(getattr(code, "co_filename", "")) for code in codes]
            if any(file.startswith(own) and not is_installed(file, workspace) for file in files):
                names.append(_name_for_report(name))
    return sorted(names)[:_MAX_LISTED]


def _name_for_report(name):
    """Return a name in which this package, whose name is random, is called `ringfence`."""
    return clean(name.replace(__package__, "ringfence"), _MAX_NAME_CHARS)
