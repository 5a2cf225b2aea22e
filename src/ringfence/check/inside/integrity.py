"""Compares the runner, as it is in the process that runs tests, with what it was before code of the project was loaded.

Also fails in every way that a test can, for the canary: a test that must fail.
"""

import os
import site
import sys
import sysconfig
import types
import unittest

from .channel import clean

_MOST_ALTERED = 20
SPECIAL = ("__getattribute__", "__getattr__", "__setattr__", "__call__", "__new__", "__init__", "__eq__")
"""Methods that decide what all others do."""
_REPLACED = ("_pytest.config.Config._getini_unknown_type",)  # by pytest itself (legacypath)
# What a test raises by this name ends it as passed; no run of ours stops at the first failure, which it is for.
unittest.case._ShouldStop = ()  # type: ignore[attr-defined]
_WATCHED = ("_pytest", "pytest", "pluggy", "unittest", "contextlib", __package__)


def _package_directories():
    """Directories of the interpreter's packages, and others that it imports from before code of the project runs."""
    schemes = [sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    sites = getattr(site, "getsitepackages", list)()  # virtual environments of old versions have none
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = [os.path.realpath(path) for path in (*schemes, *sites, *sys.path) if path]
    return tuple(sorted({path for path in found if path != os.path.realpath(own)}))


_PACKAGES = _package_directories()
_SITES = ("site-packages", "dist-packages")


def is_installed(path, workspace):
    """Whether a file belongs to Python or an installed package; in the workspace these have a directory of their own."""
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
    """Fail; return only if something that must fail does not."""
    case = unittest.TestCase()
    ways = [_plainly, lambda: case.assertEqual(1, 2), lambda: case.assertTrue(False), case.fail]
    ways += [lambda: _raising_nothing(case.assertRaises(ValueError)), _in_a_run, *further]
    for way in ways:
        try:
            way()
        except BaseException:  # pytest's own failures are no Exception
            continue
        return
    raise AssertionError("the canary fails, as it must")


def _plainly():
    one, two = 1, 2
    assert one == two


def _raising_nothing(context):
    with context:
        pass


def _in_a_run():
    result = unittest.TestResult()
    unittest.FunctionTestCase(_plainly).run(result)
    if result.failures and not result.wasSuccessful():
        raise AssertionError("failed, as it must")


def functions():
    """Every function, class and tuple of the runner and of this package, as it is now."""
    found = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.split(".")[0] in _WATCHED:
            _look(found, name, vars(module))
            for key, value in list(vars(module).items()):
                if isinstance(value, (type, tuple)):
                    found[name + "." + key] = [value, *_special(value)]
                if isinstance(value, type) and value.__module__ == name:
                    _look(found, name + "." + key, vars(value))
    return found


def _special(value):
    """What decides about all other attributes of a class, though it may be no function."""
    if not isinstance(value, type):
        return []
    return [*value.__mro__, *(vars(value)[name] for name in SPECIAL if name in vars(value))]


def _look(found, prefix, namespace):
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
    """Whether code of the workspace follows each line that runs, which can jump over others; coverage is none of it."""
    code = getattr(sys.gettrace(), "__code__", None)
    own = os.path.realpath(workspace) + os.sep
    return code is not None and os.path.realpath(code.co_filename).startswith(own)


def altered_by(workspace, before):
    """Names of functions whose code is the workspace's own now, and not that of a package installed there."""
    own = os.path.realpath(workspace) + os.sep
    names = []
    for name, codes in functions().items():
        if name in before and not is_same(codes, before[name]):
            files = [os.path.realpath(getattr(code, "co_filename", "")) for code in codes]
            if any(file.startswith(own) and not is_installed(file, workspace) for file in files):
                names.append(clean(name.replace(__package__, "ringfence"), 200))
    return sorted(names)[:_MOST_ALTERED]


def altered(before):
    """Names of functions that are not what they were."""
    now = functions()
    names = sorted(
        name for name, code in before.items() if not is_same(now.get(name), code) and name not in _REPLACED
    )
    return [clean(name.replace(__package__, "ringfence"), 200) for name in names[:_MOST_ALTERED]]
