"""Compares the loaded tests with their files, which are read and compiled again.

A function without decorators must have the code of its file. A test with decorators must lead to that code: through
wrappers whose own code is that of a test file or an installed package, each of which holds the next one in its closure.
"""

import ast
import builtins
import contextlib
import functools
import importlib.util
import itertools
import os
import sys
import types

from .channel import clean
from .integrity import SPECIAL, is_installed, is_installed_module

_MAX_LISTED = 20
_MAX_WRAPPERS = 100
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_RUNNERS = ("pytest", "_pytest", "unittest", "contextlib")
_MODULE_HOOKS = (
    *("load_tests", "pytest_generate_tests", "pytestmark", "pytest_plugins", "__getattr__", "__test__"),
    *(
        "setUpModule",
        "tearDownModule",
        "setup_module",
        "teardown_module",
        "setup_function",
        "teardown_function",
    ),
)
"""Names by which a module changes how its tests are found and run."""
_HOOKS = ("setUpClass", "tearDownClass", "setUp", "tearDown")
_ENUM = (
    *(
        "__new__",
        "__format__",
        "__repr__",
        "__str__",
        "__reduce_ex__",
        "_generate_next_value_",
        "_member_type_",
    ),
    *("_missing_", "_new_member_", "_value_repr_"),
)
_MADE = (
    ("EnumMeta", _ENUM),
    ("EnumType", _ENUM),
    ("_ProtocolMeta", ("__init__", "__subclasshook__")),
    ("NamedTuple", ("__new__", "__repr__", "__getnewargs__", "_asdict", "_make", "_replace")),
)
"""Methods that Python itself adds to a class, by the type of the class."""


def altered_definitions(test_files, workspace):
    """Return the names of what loaded test files define otherwise than their files say.

    It compares functions and methods (decorated ones only if they are tests), attributes of a class that hide a
    method of a base class, names that a file imports from the test runner, and built-in names. Assertions must not be
    rewritten (`--assert=plain`).

    Args:
        test_files: The test files, relative to the workspace.
        workspace: The directory with the product's code.
    """
    loaded = {}
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__file__", None), str):
            loaded[os.path.realpath(module.__file__)] = module
    paths = {file: os.path.realpath(os.path.join(workspace, file)) for file in test_files}
    defined = {file: defined_in(path) for file, path in paths.items() if path in loaded}
    codes = [code for _, codes in defined.values() for code in codes]
    wrappers = _Wrappers(codes, frozenset(paths.values()), workspace)
    names = []
    for file, (body, codes) in defined.items():
        module = _Module(body, codes, vars(loaded[paths[file]]), wrappers)
        names += ["%s in %s" % (name, file) for name in module.altered()]
    return [clean(name, 200) for name in names[:_MAX_LISTED]]


def names_in(path):
    """Return all names that a file defines, imports or assigns, at any depth."""
    names = set()
    for line in defined_in(path)[0]:
        for node in ast.walk(line):
            if isinstance(node, _DEFINITIONS):
                names.add(node.name)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
    return names


def defined_in(path):
    """Return the statements of a file and all code objects that it compiles to; nothing if it is not valid Python."""
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


class _Wrappers:
    """Follows the wrappers that decorators put around a function to the code that its file has.

    Args:
        codes: All code objects of the loaded test files.
        files: The absolute paths of these files.
        workspace: The directory with the product's code.
    """

    def __init__(self, codes, files, workspace):
        self.codes = codes
        self._files = files
        self._workspace = workspace
        self._installed = {}

    def is_known(self, code):
        """Whether code is that of a test file or an installed package."""
        return code in self.codes or code in self._codes_of(os.path.realpath(code.co_filename))

    def is_product(self, module):
        """Whether a module belongs to the product: it is neither installed nor a test file."""
        if module is None or is_installed_module(module.split(".")[0], self._workspace):
            return False
        loaded = sys.modules.get(module)
        path = getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", ())), None)
        return isinstance(path, str) and os.path.realpath(path) not in self._files

    def _codes_of(self, path):
        if not is_installed(path, self._workspace):
            return []
        if path not in self._installed:
            self._installed[path] = defined_in(path)[1]
        return self._installed[path]

    def lead_to(self, value, codes, namespace, is_any_allowed=False):
        """Whether a value is a function with one of some code objects, or such a function in known wrappers.

        Args:
            value: The value of the definition's name.
            codes: Code objects of the definition.
            namespace: The global variables that the function must have.
            is_any_allowed: Whether a wrapper may be code of the product, as the test file applies its decorator.
        """
        waiting, seen, is_found = [value], [], False
        while waiting and len(seen) < _MAX_WRAPPERS:
            each = waiting.pop()
            if any(each is other for other in seen):
                continue
            seen.append(each)
            function = getattr(each, "__func__", each) if isinstance(each, _METHODS) else each
            if not isinstance(function, types.FunctionType):
                if not (is_any_allowed or self._is_known_object(each)):
                    return False
                waiting += _held_by(each)
            elif function.__code__ in codes:
                is_found = is_found or function.__globals__ is namespace
            elif is_any_allowed or self.is_known(function.__code__):
                is_file_s = function.__code__ in self.codes
                cells = _cells(function)
                # What a wrapper of a test file holds is that file's choice; an installed one calls what it holds.
                waiting += [one for one in cells if not is_file_s or self._may_lead(one)]
            else:
                return False
        return is_found

    def _may_lead(self, value):
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            return self.is_known(function.__code__)
        return self._is_known_object(value)

    def _is_known_object(self, value):
        """Whether a callable object or context manager runs no code of the product when it is called or entered."""
        if isinstance(value, type):
            return True
        functions = [getattr(type(value), name, None) for name in ("__call__", "__enter__", "__exit__")]
        if isinstance(value, contextlib.ContextDecorator):
            functions.append(getattr(value, "func", None))
        codes = [getattr(each, "__code__", None) for each in functions]
        return all(self.is_known(code) for code in codes if code is not None)


_METHODS = (types.MethodType, staticmethod, classmethod)


def _cells(function):
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it is empty
            continue
    return [each for each in found if callable(each) or isinstance(each, _METHODS)]


def _held_by(value):
    """Return the functions that a callable object, such as a `functools.partial`, calls."""
    if isinstance(value, (functools.partial, functools.partialmethod)):
        return [value.func]
    if isinstance(value, type(functools.lru_cache(maxsize=1)(len))):
        return [value.__wrapped__]
    return [value.fget] if isinstance(value, property) else []


class _Module:
    """A loaded test file.

    Args:
        body: Its statements.
        codes: All code objects that it compiles to.
        namespace: The module's variables.
        wrappers: Follows decorators.
    """

    def __init__(self, body, codes, namespace, wrappers):
        self._body = body
        self._codes = codes
        self._namespace = namespace
        self._wrappers = wrappers
        self._imports = dict(_imported(body, namespace.get("__package__") or ""))

    def altered(self):
        """Yield names whose values are not what the file defines."""
        bound = _all_bound(self._body)
        for name in set(vars(builtins)).intersection(self._namespace):
            if not (name.startswith("__") or name in bound or "*" in bound):
                yield name
        for name in _MODULE_HOOKS:
            if name in self._namespace and not (name in bound or "*" in bound):
                yield name
        own = self._namespace.get("__builtins__")
        if own is not vars(builtins) and own is not builtins:
            yield "__builtins__"
        names = _bound(self._body)
        for name, (module, attribute) in self._imports.items():
            if module.split(".")[0] in _RUNNERS and names.count(name) == 1:
                origin = sys.modules.get(module)
                there = getattr(origin, attribute, None) if attribute else origin
                if there is not None and self._namespace.get(name) is not there:
                    yield name
        for name in self._unlike(self._body, self._namespace):
            yield name

    def _unlike(self, body, found, owner=None, wrapped_by=()):
        """Yield the names of definitions whose values are not what the file defines.

        Args:
            body: The statements with the definitions.
            found: The values, by name.
            owner: The class whose body it is; None: the module.
            wrapped_by: Decorators of the class, which may wrap its methods.
        """
        names = _bound(body)
        for each in body:
            if not isinstance(each, _DEFINITIONS) or names.count(each.name) > 1:
                continue  # what an assignment makes of it is not known
            value = found.get(each.name)
            if isinstance(each, ast.ClassDef):
                for name in self._unlike_class(each, value):
                    yield name
            elif not (each.decorator_list or wrapped_by):
                if not self._is_plain(each, value):
                    yield each.name
            elif not self._is_decorated(each, value, owner, wrapped_by):
                yield each.name

    def _unlike_class(self, definition, value):
        if isinstance(value, type):
            methods = self._unlike(definition.body, vars(value), value, definition.decorator_list)
            for name in itertools.chain(methods, self._further(definition, value)):
                yield "%s.%s" % (definition.name, name)
            bases = [self._named(each) for each in definition.bases]
            if definition.decorator_list or definition.keywords or not all(map(_is_class, bases)):
                return
            kinds = {type, *map(type, bases)}
            if type(value) not in kinds:
                yield "%s.__class__" % definition.name
            elif kinds == {type, type(value)} and value.__bases__ != (tuple(bases) or (object,)):
                yield "%s.__bases__" % definition.name
        elif not definition.decorator_list:
            yield definition.name

    def _is_plain(self, definition, value):
        function = getattr(value, "__func__", value)
        code = getattr(function, "__code__", None)
        if code is None or not any(code == other for other in self._codes_of(definition)):
            return False
        return getattr(function, "__globals__", self._namespace) is self._namespace

    def _codes_of(self, definition):
        lines = [definition.lineno] + [each.lineno for each in definition.decorator_list]
        return [
            code
            for code in self._codes
            if code.co_name == definition.name and code.co_firstlineno in (min(lines), definition.lineno)
        ]

    def _is_decorated(self, definition, value, owner, wrapped_by):
        decorators = [*definition.decorator_list, *wrapped_by]
        if value is None and owner is not None:
            # A decorator may have put others in its place (`test_add_0`), but not a base class.
            value = getattr(owner, definition.name, None)
        function = getattr(value, "__func__", value)
        is_test = definition.name.startswith("test") and not any(map(_is_fixture, decorators))
        if not (is_test and callable(function)) and (owner is None or not _is_function(function)):
            return True
        is_by_product = self._is_by_product(definition, *wrapped_by)
        if any((self._module_of(each) or "").split(".")[0] == "hypothesis" for each in decorators):
            value = getattr(getattr(value, "hypothesis", None), "inner_test", value)
        if self._wrappers.lead_to(value, self._codes_of(definition), self._namespace, is_by_product):
            return True
        return not is_test and (is_by_product or self._wrappers.is_known(function.__code__))

    def _is_by_product(self, definition, *further):
        decorators = [*definition.decorator_list, *further]
        return any(self._wrappers.is_product(self._module_of(each)) for each in decorators)

    def _module_of(self, decorator):
        """Return the module that a decorator was imported from; None: it is defined in the file or built in."""
        node = decorator
        while isinstance(node, (ast.Attribute, ast.Call)):
            node = node.value if isinstance(node, ast.Attribute) else node.func
        return self._imports.get(getattr(node, "id", None), (None, None))[0]

    def _named(self, node):
        """Return the value of a name, which may have attributes (`a.b`)."""
        if isinstance(node, ast.Attribute):
            return getattr(self._named(node.value), node.attr, None)
        name = getattr(node, "id", None)
        return self._namespace.get(name, getattr(builtins, name or "", None))

    def _further(self, definition, value):
        """Yield names that a class has besides its definitions, and that neither Python nor a decorator put there."""
        kind = "NamedTuple" if issubclass(value, tuple) and "_fields" in vars(value) else type(value).__name__
        own = _bound(definition.body)
        for name, held in list(vars(value).items()):
            function = getattr(held, "__func__", held)
            if isinstance(function, types.FunctionType):
                if name in own or function.__code__ in self._wrappers.codes:
                    continue
                if not self._may_have_made(definition, kind, name, function):
                    yield name
            elif not (name in own or name in dict(_MADE).get(kind, ())) and callable(held):
                is_special = name in SPECIAL and not definition.decorator_list
                if is_special or (not name.startswith("__") and callable(_inherited(value, name))):
                    yield name

    def _may_have_made(self, definition, kind, name, function):
        """Whether Python, or a decorator of the class or of a method, may have added a function to a class."""
        for one in definition.body:
            if getattr(one, "decorator_list", None) and name.startswith(one.name + "_"):
                is_by_product = self._is_by_product(one)
                return self._wrappers.lead_to(function, self._codes_of(one), self._namespace, is_by_product)
        is_made_of_text = function.__code__.co_filename.startswith("<")
        if name in dict(_MADE).get(kind, ()) and (
            is_made_of_text or self._wrappers.is_known(function.__code__)
        ):
            return True
        if not definition.decorator_list:
            return False
        if self._is_by_product(definition):
            return True
        if name.startswith("test"):  # an inherited one, wrapped
            return self._wrappers.lead_to(function, self._wrappers.codes, function.__globals__)
        if name.startswith("__") and is_made_of_text:
            return True
        return (name in _HOOKS or name.startswith("__")) and self._wrappers.is_known(function.__code__)


def _is_function(value):
    return isinstance(value, types.FunctionType)


def _is_class(value):
    return isinstance(value, type)


def _is_fixture(decorator):
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(node, "attr", getattr(node, "id", None)) == "fixture"


def _inherited(kind, name):
    for base in kind.__mro__[1:]:
        if name in vars(base):
            return getattr(kind.__mro__[1], name, None)
    return None


def _bound(body):
    """Return the names that statements define, import or assign, each as often as they do."""
    names = [each.name for each in body if isinstance(each, _DEFINITIONS)]
    names += [each.id for line in body for each in ast.walk(line) if _is_assigned(line, each)]
    for line in body:
        if isinstance(line, (ast.Import, ast.ImportFrom)):
            names += [each.asname or each.name.split(".")[0] for each in line.names]
    return names


def _all_bound(body):
    """Return the names that statements define, import or assign at any depth, as each of them may be global."""
    names = set()
    for line in body:
        for node in ast.walk(line):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            elif isinstance(node, _DEFINITIONS):
                names.add(node.name)
            elif isinstance(node, ast.alias):
                names.update([node.asname or node.name.split(".")[0], node.name])
            elif isinstance(node, ast.ExceptHandler):
                names.add(node.name)
    return names


def _is_assigned(line, node):
    is_statement = isinstance(
        line, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With, ast.If, ast.Try)
    )
    return is_statement and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _imported(body, package):
    """Yield (name, (module, attribute or None)) for each import among some statements."""
    for line in body:
        if isinstance(line, ast.Import):
            for each in line.names:
                module = each.name if each.asname else each.name.split(".")[0]
                yield each.asname or module, (module, None)
        elif isinstance(line, ast.ImportFrom):
            module = line.module or ""
            if line.level:
                try:
                    module = importlib.util.resolve_name("." * line.level + module, package)
                except (ImportError, ValueError):
                    continue
            for each in line.names:
                yield each.asname or each.name, (module, each.name)


def altered_attributes(instance, kind, workspace):
    """Return the names of methods that an instance has in place of those of its class; `subTest` may be a package's.

    Args:
        instance: The object whose method is the test.
        kind: The class that it had before the test.
        workspace: The directory with the product's code.
    """
    wrappers = _Wrappers([], frozenset(), workspace)
    found = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    names = ["__class__"] if type(instance) is not kind or found not in (kind, None) else []
    for name, value in getattr(instance, "__dict__", {}).items():
        if not _is_function(getattr(kind, name, None)):
            continue
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if name != "subTest" or code is None or not wrappers.is_known(code):
            names.append(name)
    return ["%s.%s of an instance" % (kind.__name__, clean(name, 100)) for name in names]
