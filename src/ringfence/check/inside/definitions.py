"""Compares the loaded tests with their files, which are read and compiled again.

A function without decorators must have the code of its file. A test with decorators must lead to that code: through
wrappers whose own code is that of a test file or an installed package, each of which holds the next one in its closure.
"""

import ast
import builtins
import importlib.util
import itertools
import os
import sys
import types

from .channel import clean
from .integrity import SPECIAL
from .wrappers import Wrappers, defined_in

_MAX_LISTED = 20
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


_MAKERS = ("dataclasses", "attr", "attrs", "pydantic", "functools")
"""Packages whose decorators add special methods to a class."""
_BUILT_IN_DECORATORS = ("staticmethod", "classmethod", "property")
_TRANSPARENT_MODULES = ("contextlib", "functools", "abc", "typing", "typing_extensions")
_TRANSPARENT = (
    *("contextmanager", "asynccontextmanager", "lru_cache", "cache", "cached_property"),
    *("abstractmethod", "override", "final", "no_type_check"),
)
"""Decorators of Python that make something which leads to the function."""


def altered_definitions(test_files, workspace, running=()):
    """Return the names of what loaded test files define otherwise than their files say.

    It compares functions and methods (decorated ones only if they are tests), attributes of a class that hide a
    method of a base class, names that a file imports from the test runner, and built-in names. Assertions must not be
    rewritten (`--assert=plain`).

    Args:
        test_files: The test files, relative to the workspace.
        workspace: The directory with the product's code.
        running: (file, variables) of the module of each test that runs: of a module that is loaded from elsewhere, or
            that `sys.modules` does not have, a test file is not what runs. Variables of None: they are not known.
    """
    paths = {file: os.path.realpath(os.path.join(workspace, file)) for file in test_files}
    loaded = _loaded_modules(paths, running)
    bodies = {file: defined_in(paths[file]) for file, _ in loaded}
    wrappers = Wrappers(
        [(bodies[file][1], variables) for file, variables in loaded], frozenset(paths.values()), workspace
    )
    files = {file for file, _ in loaded}
    names = ["the module of %s" % file for file, _ in running if file in paths and file not in files]
    for file, variables in loaded:
        module = _Module(*bodies[file], variables, wrappers)
        names += ["%s in %s" % (name, file) for name in module.altered()]
    return [clean(name, 200) for name in names[:_MAX_LISTED]]


def _loaded_modules(paths, running):
    """Return (file, variables) of all modules that say that they are one of some files, and of those that run."""
    files = {path: file for file, path in paths.items()}
    found = [(file, variables) for file, variables in running if file in paths and variables is not None]
    for module in list(sys.modules.values()):
        place = getattr(module, "__file__", None)
        file = files.get(os.path.realpath(place)) if isinstance(place, str) else None
        variables = getattr(module, "__dict__", None)
        if file is not None and not any(variables is other for _, other in found):
            found.append((file, variables))
    return found


def file_of_class(kind, test_files):
    """Return the test file that defines a class by the name of its module; None: it is none of the test files."""
    end = kind.__module__.replace(".", "/") + ".py"
    found = [file for file in test_files if file == end or file.endswith("/" + end)]
    return min(found, key=len) if found else None


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
        names, definitions = _bound(body), {}
        for each in _statements(body):
            if isinstance(each, _DEFINITIONS):
                definitions.setdefault(each.name, []).append(each)
        for name, ways in definitions.items():
            if len(ways) < names.count(name):
                if name.startswith("test") and not self._is_assigned_test(body, ways, found.get(name)):
                    yield name
                continue
            if name not in found and not any(way in body for way in ways):
                continue  # the statement around it did not run it
            unlike = [[*self._unlike_definition(way, found.get(name), owner, wrapped_by)] for way in ways]
            for other in min(unlike, key=len):
                yield other

    def _unlike_definition(self, definition, value, owner, wrapped_by):
        if isinstance(definition, ast.ClassDef):
            for name in self._unlike_class(definition, value):
                yield name
        elif not (definition.decorator_list or wrapped_by):
            if not self._is_plain(definition, value):
                yield definition.name
        elif not self._is_decorated(definition, value, owner, wrapped_by):
            yield definition.name

    def _is_assigned_test(self, body, definitions, value):
        """Whether a test that is defined and assigned, too, is what the assignment may have made of it."""
        name = definitions[0].name
        assignments = [
            each for each in _statements(body)
            if isinstance(each, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and name in _stored(each)
        ]  # fmt: skip
        read = [
            node for each in assignments for node in ast.walk(each)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        ]  # fmt: skip
        is_wrapped = bool(assignments) and name in [node.id for node in read]
        if not is_wrapped or not callable(value):
            return True  # another value, which the file does not define
        is_by_product = any(self._wrappers.is_product(self._module_of(node)) for node in read)
        codes = [code for each in definitions for code in self._codes_of(each)]
        return self._wrappers.lead_to(value, codes, self._namespace, is_by_product)

    def _unlike_class(self, definition, value):
        if isinstance(value, type):
            methods = self._unlike(definition.body, vars(value), value, definition.decorator_list)
            for name in itertools.chain(methods, self._further(definition, value)):
                yield "%s.%s" % (definition.name, name)
            bases = [self._named(each) for each in definition.bases]
            if definition.keywords or not all(map(_is_class, bases)) or not self._keeps_class(definition):
                return
            kinds = {type, *map(type, bases)}
            if type(value) not in kinds:
                yield "%s.__class__" % definition.name
            elif kinds == {type, type(value)} and value.__bases__ != (tuple(bases) or (object,)):
                yield "%s.__bases__" % definition.name
        elif not definition.decorator_list:
            yield definition.name

    def _keeps_class(self, definition):
        """Whether the decorators of a class return it, or one with the same bases: all that are installed but six's."""
        modules = [self._module_of(each) for each in definition.decorator_list]
        return not self._is_by_product(definition) and all(
            module is not None and module.split(".")[0] != "six" for module in modules
        )

    def _makes_special_methods(self, definition):
        """Whether a decorator of a class adds methods such as `__init__` to it."""
        modules = [self._module_of(each) or "" for each in definition.decorator_list]
        return self._is_by_product(definition) or any(each.split(".")[0] in _MAKERS for each in modules)

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
        is_transparent = not is_test and all(map(self._is_transparent, definition.decorator_list))
        is_compared = is_transparent or (is_test and callable(function))
        if not is_compared and (owner is None or not _is_function(function)):
            return True
        is_by_product = self._is_by_product(definition, *wrapped_by)
        if any((self._module_of(each) or "").split(".")[0] == "hypothesis" for each in decorators):
            value = getattr(getattr(value, "hypothesis", None), "inner_test", value)
        if self._wrappers.lead_to(value, self._codes_of(definition), self._namespace, is_by_product):
            return True
        is_known = _is_function(function) and self._wrappers.is_known_function(function)
        return not is_test and (is_by_product or (is_known and not is_transparent))

    def _is_transparent(self, decorator):
        """Whether a decorator, of Python's own, leaves a way from what it makes to the function."""
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = getattr(node, "attr", getattr(node, "id", None))
        module = self._module_of(node)
        if module is None:
            return name in _BUILT_IN_DECORATORS and name not in _all_bound(self._body)
        return module in _TRANSPARENT_MODULES and name in _TRANSPARENT

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
                if name in own or self._is_of_test_file(function):
                    continue
                if not self._may_have_made(definition, kind, name, function):
                    yield name
            elif not (name in own or name in dict(_MADE).get(kind, ())) and callable(held):
                is_special = name in SPECIAL and not self._makes_special_methods(definition)
                if is_special or (not name.startswith("__") and callable(_inherited(value, name))):
                    yield name

    def _is_of_test_file(self, function):
        return function.__code__ in self._wrappers.codes and self._wrappers.is_known_function(function)

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
            return name not in SPECIAL or self._makes_special_methods(definition)
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


def _statements(body):
    """Yield the statements of a scope, with those inside `if`, `try`, `with` and loops."""
    for line in body:
        yield line
        if isinstance(line, _DEFINITIONS):
            continue
        parts = [line, *getattr(line, "handlers", ()), *getattr(line, "cases", ())]
        for field in ("body", "orelse", "finalbody"):
            for part in parts:
                for each in _statements(getattr(part, field, ())):
                    yield each


def _bound(body):
    """Return the names that the statements of a scope define, import or assign, each as often as they do."""
    names = []
    for line in _statements(body):
        if isinstance(line, _DEFINITIONS):
            names.append(line.name)
        elif isinstance(line, (ast.Import, ast.ImportFrom)):
            names += [each.asname or each.name.split(".")[0] for each in line.names]
        else:
            names += _stored(line)
    return names


def _stored(line):
    """Return the names that a statement itself assigns, not those in it."""
    if isinstance(line, (ast.For, ast.AsyncFor)):
        parts = [line.target]
    elif isinstance(line, (ast.With, ast.AsyncWith)):
        parts = [each.optional_vars for each in line.items if each.optional_vars is not None]
    elif isinstance(line, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        parts = [line]
    else:
        return []
    nodes = (node for part in parts for node in ast.walk(part))
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


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
    wrappers = Wrappers([], frozenset(), workspace)
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
