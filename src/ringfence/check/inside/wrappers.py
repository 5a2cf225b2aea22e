"""Follows what decorators made of a function to the code that its file has, through wrappers whose code is known."""

import ast
import contextlib
import functools
import os
import sys
import types

from .integrity import is_installed, is_installed_module

_MAX_WRAPPERS = 100
_METHODS = (types.MethodType, staticmethod, classmethod)


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


class Wrappers:
    """Follows the wrappers that decorators put around a function to the code that its file has.

    Args:
        loaded: (code objects, variables) of each loaded test file.
        files: The absolute paths of these files.
        workspace: The directory with the product's code.
    """

    def __init__(self, loaded, files, workspace):
        self.codes = [code for codes, _ in loaded for code in codes]
        self._loaded = loaded
        self._files = files
        self._workspace = workspace
        self._installed = {}

    def is_known(self, code):
        """Whether code is that of a test file or an installed package."""
        return code in self.codes or code in self._codes_of(os.path.realpath(code.co_filename))

    def is_known_function(self, function):
        """Whether a function has known code and the global variables of the module that the code is of."""
        variables = function.__globals__
        if any(function.__code__ in codes and variables is own for codes, own in self._loaded):
            return True
        module = sys.modules.get(variables.get("__name__"))
        is_own = isinstance(module, types.ModuleType) and vars(module) is variables
        return is_own and function.__code__ in self._codes_of(os.path.realpath(function.__code__.co_filename))

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
                if not (is_any_allowed or self._is_known_object(function)):
                    return False
                waiting += _held_by(function)
            elif not all(map(_is_patch, vars(function).get("patchings", ()))):
                return False
            elif function.__code__ in codes:
                is_found = is_found or function.__globals__ is namespace
            elif is_any_allowed or self.is_known_function(function):
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
            return self.is_known_function(function)
        return self._is_known_object(value)

    def _is_known_object(self, value):
        """Whether a callable object or context manager runs no code of the product when it is called or entered."""
        if isinstance(value, type):
            return True
        kind = type(value)
        # The check is of classes that Python calls through, not of what an instance says of itself.
        if any(isinstance(getattr(kind, name, None), types.FunctionType) for name in _variables(value)):
            return False
        functions = [getattr(kind, name, None) for name in ("__call__", "__enter__", "__exit__", "__get__")]
        if isinstance(value, contextlib.ContextDecorator):
            functions.append(getattr(value, "func", None))
        codes = [getattr(each, "__code__", None) for each in functions]
        return all(self.is_known(code) for code in codes if code is not None)


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
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [value.fget] if isinstance(value, property) else []


def _variables(value):
    found = getattr(value, "__dict__", None)
    return list(found) if isinstance(found, dict) else []


def _is_patch(value):
    """Whether a further patch of a function that `mock.patch` wraps is one of mock's own."""
    kinds = [
        getattr(sys.modules.get(name), "_patch", None) for name in ("unittest.mock", "mock.mock", "mock")
    ]
    return any(type(value) is kind for kind in kinds if kind is not None)
