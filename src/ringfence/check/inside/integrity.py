"""Compares the runner and the tests, as they are in the process that runs them, with what they are in their files.

Also fails in every way that a test can, for the canary: a test that must fail.
"""

import ast
import os
import sys
import types
import unittest

from .channel import clean

_MOST_ALTERED = 20
_REPLACED = ("_pytest.config.Config._getini_unknown_type",)  # by pytest itself (legacypath)
# What a test raises by this name ends it as passed; no run of ours stops at the first failure, which it is for.
unittest.case._ShouldStop = ()  # type: ignore[attr-defined]
_WATCHED = ("_pytest", "pytest", "pluggy", "unittest", "contextlib", __package__)


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
                    found[name + "." + key] = [value]
                if isinstance(value, type) and value.__module__ == name:
                    _look(found, name + "." + key, vars(value))
    return found


def _look(found, prefix, namespace):
    for key, value in list(namespace.items()):
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "__func__", value)
        if isinstance(value, types.FunctionType):
            found[prefix + "." + key] = _codes(value)


def _codes(function):
    """Of a decorated function the decorator's code is not enough: all that it decorates have the same."""
    codes = []
    while isinstance(function, types.FunctionType) and len(codes) < 10:
        codes.append(function.__code__)
        function = getattr(function, "__wrapped__", None)
    return codes


def _is_same(codes, others):
    # Equal code is not enough: it may stand for another function.
    return codes is not None and [id(code) for code in codes] == [id(code) for code in others]


def unlike_their_files(test_files, workspace):
    """Functions of loaded test files that are not what their files define, read and compiled anew.

    Compared are functions and methods without decorators, by their code. What a class has besides them must be code of
    the test files too; or, for a decorated method and those that a decorator makes of it (`test_add` and
    `test_add_0_two`), code of an installed package. Assertions must not be rewritten (`--assert=plain`).
    """
    loaded = {}
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__file__", None), str):
            loaded[os.path.realpath(module.__file__)] = module
    paths = {file: os.path.realpath(os.path.join(workspace, file)) for file in test_files}
    defined = {file: _defined_in(path) for file, path in paths.items() if path in loaded}
    decorators = _Decorators([code for _, codes in defined.values() for code in codes], workspace)
    names = []
    for file, (body, codes) in defined.items():
        found = _unlike(body, vars(loaded[paths[file]]), codes, decorators)
        names += ["%s in %s" % (name, file) for name in found]
    return [clean(name, 200) for name in names[:_MOST_ALTERED]]


def is_traced_by(workspace):
    """Whether code of the workspace follows each line that runs, which can jump over others; coverage is none of it."""
    code = getattr(sys.gettrace(), "__code__", None)
    own = os.path.realpath(workspace) + os.sep
    return code is not None and os.path.realpath(code.co_filename).startswith(own)


def names_in(path):
    """All names that a file defines, imports or assigns, at whatever depth."""
    names = set()
    for line in _defined_in(path)[0]:
        for node in ast.walk(line):
            if isinstance(node, _DEFINITIONS):
                names.add(node.name)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
    return names


def _defined_in(path):
    """The statements of a file, and the code of all its functions, compiled anew."""
    try:
        with open(path, "rb") as source:
            tree = ast.parse(source.read())
        waiting = [compile(tree, path, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return [], []
    codes = []
    while waiting:
        code = waiting.pop()
        codes.append(code)
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return tree.body, codes


class _Decorators:
    """Tells code that a decorator may have put in a method's place from code of the product.

    Args:
        codes: All code of the loaded test files.
        workspace: Where the product's code lies.
    """

    def __init__(self, codes, workspace):
        self._codes = codes
        self._own = os.path.realpath(workspace) + os.sep
        self._installed = {}

    def may_have_made(self, code):
        return code in self._codes or code in self._codes_of(os.path.realpath(code.co_filename))

    def _codes_of(self, path):
        if path.startswith(self._own) and "site-packages" not in path:
            return []
        if path not in self._installed:
            self._installed[path] = _defined_in(path)[1]
        return self._installed[path]


def _unlike(body, namespace, codes, decorators):
    named = [each.name for each in body if isinstance(each, _DEFINITIONS)]
    named += [each.id for line in body for each in ast.walk(line) if _is_assigned(line, each)]
    for each in body:
        if not isinstance(each, _DEFINITIONS) or each.decorator_list or named.count(each.name) > 1:
            continue  # what a decorator or an assignment makes of it is not known
        value = namespace.get(each.name)
        if not isinstance(each, ast.ClassDef):
            code = getattr(getattr(value, "__func__", value), "__code__", None)
            if not any(code == other for other in codes if other.co_name == each.name):
                yield each.name
        elif isinstance(value, type):
            for name in _unlike(each.body, vars(value), codes, decorators):
                yield "%s.%s" % (each.name, name)
            decorated = [one.name for one in each.body if getattr(one, "decorator_list", None)]
            for name, method in vars(value).items():
                if not isinstance(method, types.FunctionType) or method.__code__ in codes:
                    continue
                is_decorated = any(name == one or name.startswith(one + "_") for one in decorated)
                if not (is_decorated and decorators.may_have_made(method.__code__)):
                    yield "%s.%s" % (each.name, name)
        else:
            yield each.name


def _is_assigned(line, node):
    is_statement = isinstance(
        line, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With, ast.If, ast.Try)
    )
    return is_statement and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def altered_by(workspace, before):
    """Names of functions whose code is the workspace's own now, and not that of a package installed there."""
    own = os.path.realpath(workspace) + os.sep
    names = []
    for name, codes in functions().items():
        if name in before and not _is_same(codes, before[name]):
            files = [os.path.realpath(getattr(code, "co_filename", "")) for code in codes]
            if any(file.startswith(own) and "site-packages" not in file for file in files):
                names.append(clean(name.replace(__package__, "ringfence"), 200))
    return sorted(names)[:_MOST_ALTERED]


def altered(before):
    """Names of functions that are not what they were."""
    now = functions()
    names = sorted(
        name for name, code in before.items() if not _is_same(now.get(name), code) and name not in _REPLACED
    )
    return [clean(name.replace(__package__, "ringfence"), 200) for name in names[:_MOST_ALTERED]]
