"""Finds plugins and hook functions of pytest that the product's code registered or changed.

Not by the product are, although they are registered later than the record: a `conftest.py` among the protected files,
a module that it names in `pytest_plugins`, and what a protected file or an installed package defines.
"""

import ast
import os
import sys
import types

from . import definitions, integrity, wrappers
from .channel import clean, shown

_MAX_NAME_CHARS = 200


class HookRecord:
    """The plugins and hook functions of a pytest process before it loads code of the project.

    Args:
        manager: pytest's plugin manager.
        functions: The functions of pytest, as `integrity.functions` returned them.
        files: Protected Python files, relative to the workspace.
        workspace: The directory with the product's code.
    """

    def __init__(self, manager, functions, files, workspace):
        self._manager = manager
        self._functions = functions
        self._files = frozenset(files)
        self._workspace = workspace
        # The objects are kept, so that no later one can have the id of one of them.
        self._plugins = list(manager.get_plugins())
        self._hooks = {}
        for _, hook in self._all_hooks():
            self._hooks[id(hook)] = (hook, hook.function, integrity.codes_of(_function_of(hook)))
        # An xdist worker is a program that is no module in `sys.modules`, and registers an object of its own.
        self._programs = list(_running_namespaces())
        self._namespaces = list(self._programs)
        self._definitions = {}

    def unexpected(self):
        """Return descriptions of the product's plugins and hook functions that are registered now."""
        names, accepted, files = [], list(self._plugins), set()
        for name, plugin in self._manager.list_name_plugin():
            if plugin is None or _contains(self._plugins, plugin):
                continue
            is_module = isinstance(plugin, types.ModuleType)
            file = shown(getattr(plugin, "__file__", None), self._workspace) if is_module else None
            if file in files or not self._is_expected(name, plugin, file):
                names.append("the plugin %s" % name)
                continue
            accepted.append(plugin)
            if is_module:
                files.add(file)
                self._namespaces.append(vars(plugin))
        for name, hook in self._all_hooks():
            if _contains(accepted, hook.plugin) and not self._is_expected_hook(name, hook):
                names.append("the hook function %s" % name)
            elif not self._is_registered(hook.plugin):
                names.append("the hook function %s of no plugin" % name)
        return [clean(name, _MAX_NAME_CHARS) for name in names]

    def _all_hooks(self):
        """Yield (name, implementation) of each hook function that pytest calls."""
        for name, caller in list(vars(self._manager.hook).items()):
            for hook in caller.get_hookimpls() if name.startswith("pytest_") else ():
                yield name, hook

    def _is_registered(self, plugin):
        return _contains(self._plugins, plugin) or _contains(self._manager.get_plugins(), plugin)

    def _is_expected(self, name, plugin, file):
        """Whether the project's tests, pytest or an installed package may have registered a plugin.

        Args:
            name: The name that it is registered by.
            plugin: The plugin.
            file: The file of a module, relative to the workspace if it lies there. None: it is no module.
        """
        if file is not None:
            is_conftest = file in self._files and os.path.basename(file) == "conftest.py"
            if is_conftest or (name in self._named_plugins() and sys.modules.get(name) is plugin):
                hooks = {each for each in vars(plugin) if each.startswith("pytest_")}
                return hooks <= definitions.names_in(os.path.join(self._workspace, file))
        hooks = [(hook_name, hook) for hook_name, hook in self._all_hooks() if hook.plugin is plugin]
        if hooks:
            return all(self._is_defined(hook_name, hook) for hook_name, hook in hooks)
        # It may have fixtures.
        kind = plugin if isinstance(plugin, type) else type(plugin)
        module = plugin if file is not None else sys.modules.get(kind.__module__)
        return self._is_trusted(getattr(module, "__file__", None))

    def _is_expected_hook(self, name, hook):
        """Whether a hook function is as it was recorded, or is its plugin's own."""
        _, function, codes = self._hooks.get(id(hook), (None, None, None))
        if function is not None:
            now = integrity.codes_of(_function_of(hook))
            return hook.function is function and integrity.is_same(codes, now)
        if _contains(self._plugins, hook.plugin):
            return False
        is_of_module = isinstance(hook.plugin, types.ModuleType)
        return (is_of_module and vars(hook.plugin).get(name) is hook.function) or self._is_defined(name, hook)

    def _named_plugins(self):
        """Return the modules that the protected `conftest.py` files name in `pytest_plugins`."""
        names = set()
        for file in self._files:
            if os.path.basename(file) == "conftest.py":
                names |= _plugins_named_in(os.path.join(self._workspace, file))
        return names

    def _is_trusted(self, path):
        """Whether a file is protected or belongs to Python or an installed package."""
        if not path:
            return False
        return shown(path, self._workspace) in self._files or integrity.is_installed(path, self._workspace)

    def _is_defined(self, name, hook):
        """Whether pytest, another installed package or a protected file defines a hook function by this name."""
        function = _function_of(hook)
        code = getattr(function, "__code__", None)
        if code is None or not self._is_trusted(code.co_filename):
            return False
        module = vars(sys.modules.get(function.__module__, types))
        if not _contains([module, *self._namespaces], function.__globals__):
            return False
        # Under an alias, pytest's own functions have another name.
        recorded = self._functions.get("%s.%s.%s" % (*_name_of(hook.plugin), name))
        if integrity.is_same(recorded, integrity.codes_of(function)):
            return True
        if code.co_filename not in self._definitions:
            self._definitions[code.co_filename] = wrappers.defined_in(code.co_filename)
        body, codes = self._definitions[code.co_filename]
        same = [each for each in codes if each.co_name == name and each.co_firstlineno == code.co_firstlineno]
        # execnet compiles the program of an xdist worker with flags of its own, so that its code differs, too.
        if code in same or (bool(same) and _contains(self._programs, function.__globals__)):
            return True
        # pytest rewrites the assertions of plugins, so that such a function has other code than its file.
        return bool(same) and code.co_firstlineno in _lines_with_assertions(body)


def _function_of(hook):
    return getattr(hook.function, "__func__", hook.function)


def _name_of(plugin):
    """Return the module and the qualified name of a plugin's class."""
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return kind.__module__, kind.__qualname__


def _contains(values, wanted):
    return any(each is wanted for each in values)


def _running_namespaces():
    """Yield the global variables of each function that is being called."""
    frame = sys._getframe()
    while frame is not None:
        yield frame.f_globals
        frame = frame.f_back


def _plugins_named_in(path):
    """Return all literal names that a file assigns to `pytest_plugins`."""
    names = set()
    for line in wrappers.defined_in(path)[0]:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if getattr(line, "value", None) is None or "pytest_plugins" not in [
            getattr(each, "id", "") for each in targets
        ]:
            continue
        for node in ast.walk(line.value):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.update(name.strip() for name in node.value.split(","))
    return names


def _lines_with_assertions(body):
    """Return the first lines of the functions that have assertions; with decorators, those of these too."""
    lines = set()
    for node in (node for line in body for node in ast.walk(line)):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and any(isinstance(each, ast.Assert) for each in ast.walk(node)):
            lines.update([node.lineno, *(each.lineno for each in node.decorator_list)])
    return lines
