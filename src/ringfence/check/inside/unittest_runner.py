"""Runs tests as `python -m unittest` does, in whose place it is started, and reports each of them to the host."""

import os
import sys
import unittest

from . import channel, definitions, integrity

_SETTINGS = channel.settings()
_BEFORE = integrity.functions()
_CHANNEL = channel.Channel(_SETTINGS["socket"])


def _file_of(test):
    module = sys.modules.get(type(test).__module__)
    return channel.shown(getattr(module, "__file__", None), _SETTINGS["workspace"])


def _id_and_file(test):
    """Return the id and the file of a test; for a module that could not be loaded, its path is both."""
    if isinstance(test, Canary):
        return _SETTINGS["canary"], None
    name, kind = test.id(), type(test).__name__
    if kind in ("_FailedTest", "ModuleSkipped") and type(test).__module__ == "unittest.loader":
        file = _path_of(test._testMethodName)
        return file or channel.clean(name, 900), file
    if kind == "_ErrorHolder":
        # The set-up of a class or module failed: one result stands for the tests there, which were not run.
        owner = name[name.find("(") + 1 : -1]
        file = _path_of(owner) or _path_of(owner.rpartition(".")[0])
        return file or channel.clean(name, 900), file
    return channel.clean(name, 900), _file_of(test)


def _path_of(module):
    """Return the file that a module would be loaded from; None if there is none."""
    for folder in sys.path:
        for ending in (".py", os.sep + "__init__.py"):
            path = os.path.join(folder, module.replace(".", os.sep)) + ending
            if module and os.path.isfile(path):
                return channel.shown(path, _SETTINGS["workspace"])
    return None


class _Result(unittest.TextTestResult):
    def _send(self, test, outcome, err=None, detail=""):
        name, file = _id_and_file(test)
        cause = None
        if err is not None:
            cause = channel.cause(err[1], _SETTINGS["workspace"])
            detail = self._exc_info_to_string(err, test)
        _CHANNEL.send(
            "result", id=name, outcome=outcome, file=file, detail=channel.clean(detail), cause=cause
        )

    def addSuccess(self, test):
        super().addSuccess(test)
        self._send(test, "passed")

    def addError(self, test, err):
        self._send(test, "error", err)
        super().addError(test, err)

    def addFailure(self, test, err):
        self._send(test, "failed", err)
        super().addFailure(test, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._send(test, "skipped", detail=reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._send(test, "skipped", err)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._send(test, "failed", detail="passed, though it is marked as an expected failure")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._send(test, "failed", err)
        super().addSubTest(test, subtest, err)


class Canary(unittest.TestCase):
    """A test that must fail."""

    def runTest(self):
        """Fail."""
        integrity.fail_in_every_way()


class _Runner(unittest.TextTestRunner):
    resultclass = _Result  # type: ignore[assignment]  # typeshed names a function

    def run(self, test):
        alone, kinds = [], []
        if _SETTINGS["only"]:
            alone = [each for each in _each(test) if _id_and_file(each)[0] == _SETTINGS["only"]]
            test = unittest.TestSuite(alone)
            kinds = [type(each) for each in alone]
            _compare(alone, kinds)
        for each in _each(test) if not _SETTINGS["only_canary"] else ():
            name, file = _id_and_file(each)
            _CHANNEL.send("collected", id=name, file=file)
        self.failfast = False
        if not _SETTINGS["canary"]:
            result = super().run(test)
            _compare(alone, kinds)
            return result
        _CHANNEL.send("collected", id=_SETTINGS["canary"], file=None)
        return super().run(Canary() if _SETTINGS["only_canary"] else unittest.TestSuite([test, Canary()]))


_ALTERED = set()  # type: ignore[var-annotated]


def _compare(cases, kinds):
    """Record what differs from the test files, and what test cases have in place of the methods of their classes.

    Args:
        cases: Instances of test cases.
        kinds: The class that each of them had before it was run.
    """
    for case, kind in zip(cases, kinds):  # noqa: B905 - Python 3.8 and 3.9 have no strict
        _ALTERED.update(definitions.altered_attributes(case, kind, _SETTINGS["workspace"]))
    files = [definitions.file_of_class(kind, _SETTINGS["test_files"]) for kind in kinds]
    running = [(file, None) for file in files if file is not None]
    _ALTERED.update(definitions.altered_definitions(_SETTINGS["test_files"], _SETTINGS["workspace"], running))
    if integrity.is_traced_by(_SETTINGS["workspace"]):
        _ALTERED.add("a trace function")


def _each(test):
    """Yield the test cases of a suite."""
    if isinstance(test, unittest.TestSuite):
        for part in test:
            yield from _each(part)
    elif test is not None:
        yield test


def _main():
    _CHANNEL.send("begin", runner="unittest")
    sys.argv[0] = "python -m unittest"
    program = unittest.main(module=None, testRunner=_Runner, exit=False)
    code = 0 if program.result.wasSuccessful() else 1
    by_project = integrity.functions_altered_by_project(_SETTINGS["workspace"], _BEFORE)
    altered = [*integrity.altered_functions(_BEFORE), *sorted(_ALTERED)]
    _CHANNEL.send("altered", names=altered, by_project=by_project)
    _CHANNEL.send("end", exit=code)
    sys.exit(code)


if __name__ == "__main__":
    _main()
