"""Why a new test is red: because what is to be built is absent, or because the test itself is broken."""

import re
from collections.abc import Callable, Collection
from pathlib import PurePosixPath

from ringfence.check.suite.model import Cause, TestResult
from ringfence.frozen import frozen

_SYNTAX = frozenset({"SyntaxError", "IndentationError", "TabError"})
_IMPORT = frozenset({"ModuleNotFoundError", "ImportError"})
_UNBOUND = frozenset({"NameError", "UnboundLocalError", "ReferenceError"})
_NOT_A_TEST = frozenset({"FixtureLookupError", "FixtureLookupErrorRepr", "UsageError", "ScopeMismatchError"})
_LAST_ERROR = re.compile(
    r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Failed|Exit))(?: \[\w+\])?(?:: (.*))?$", re.MULTILINE
)
_NODE_ABSENT = re.compile(r"Cannot find (?:module|package) '([^'\n]+)'")
_NODE_EXPORT = re.compile(r"requested module '([^'\n]+)' (?:does not provide an export|is a CommonJS module)")
_NO_MODULE = re.compile(r"No module named '([^']+)'")
_CANNOT_IMPORT = re.compile(r"cannot import name '[^']*' from (?:partially initialized module )?'([^']+)'")
_NO_FIXTURE = re.compile(r"fixture '[^'\n]+' not found")
_FILE = re.compile(r'File "([^"\n]+)", line \d+')
_ROOTS = ("src", "lib", "python", "packages")
_SHOWN = 300
_DOMAIN = 3


@frozen
class Project:
    """What counts as the project's own, so that its absence is something to be built."""

    files: Collection[str] = ()
    """Paths of the repository, and those that the story names, relative to the workspace."""
    text: str = ""
    """The story: a module that it names is to be built."""

    def owns(self, module: str) -> bool:
        """Whether a module (`calc.core`, or of a compiled language `calc::core`, `com.acme.calc`) is its own."""
        first = re.split(r"[.:/]", module, maxsplit=1)[0]
        if not first:
            return True  # relative
        if re.search(rf"(?<![\w-]){re.escape(first)}(?![\w-])", self.text):
            return True
        return any(_top(PurePosixPath(path).parts) == first for path in self.files)

    def has_package(self, name: str) -> bool:
        """Whether it has a package of Java's like this one: by its first part, or two where that is a domain."""
        parts = name.split(".")
        top = "/".join(parts[: 2 if len(parts[0]) <= _DOMAIN else 1])
        return any(f"/{top}/" in f"/{path}" for path in self.files)


def _top(parts: tuple[str, ...]) -> str:
    """Name under which Python would import what lies at a path."""
    while len(parts) > 1 and parts[0] in _ROOTS:
        parts = parts[1:]
    return parts[0].removesuffix(".py") if parts else ""


def broken_because(result: TestResult, project: Project) -> str | None:
    """Why the test itself is broken; None: it fails as it should while something is to be built."""
    cause = result.cause or cause_in(result.detail)
    if cause is None:
        is_file = result.id == result.file
        return "it cannot be loaded, and its runner does not say why" if is_file else None
    for judge in _JUDGES:
        if (why := judge(cause, result, project)) is not None:
            return why or None
    return None


def cause_in(detail: str) -> Cause | None:
    """The last exception that a Python traceback names."""
    errors, places = _LAST_ERROR.findall(detail), _FILE.findall(detail)
    if not errors:
        return None
    kind, message = errors[-1]
    return Cause(kind.rpartition(".")[2], message, None, places[-1] if places else None)


def _says(cause: Cause, extra: str = "") -> str:
    message = " ".join(cause.message.split())[:_SHOWN]
    return f"{cause.type}{': ' if message else ''}{message}{extra}"


def _syntax(cause: Cause, _result: TestResult, _project: Project) -> str | None:
    if cause.type not in _SYNTAX:
        return None
    return _says(cause)


def _told(cause: Cause, _result: TestResult, project: Project) -> str | None:
    """What a compiler's words were taken for when they were read."""
    if cause.type == "broken":
        return f"it cannot be compiled: {' '.join(cause.message.split())[:_SHOWN]}"
    if cause.type == "foreign":
        names = (cause.name or "").split()
        others = [name for name in names if not (project.owns(name) or project.has_package(name))]
        return _foreign(cause, others[0]) if others else ""
    return "" if cause.type in ("absent", "compiler") else None


def _foreign(cause: Cause, name: str) -> str:
    return _says(cause, f"; {name!r} is not installed, not of this project, and the story does not name it")


def _absent_in_node(cause: Cause, _result: TestResult, project: Project) -> str | None:
    """A module or an export that is not there: right if it is one of the project's."""
    match = _NODE_ABSENT.search(cause.message) or _NODE_EXPORT.search(cause.message)
    if match is None:
        return None
    name = match[1].removeprefix("file://")
    if name.startswith((".", "/", "#")) or project.owns(name):
        return ""
    return _foreign(cause, name)


def _absent(cause: Cause, result: TestResult, project: Project) -> str | None:
    """An import that fails: right if what is missing is the project's."""
    if cause.type not in _IMPORT:
        return None
    match = _NO_MODULE.search(cause.message) or _CANNOT_IMPORT.search(cause.message)
    name = match[1] if match else cause.name
    if name is None:
        # `Failed to import test module`, with the exception that matters in its text.
        inner = cause_in(cause.message) or cause_in(result.detail)
        if inner is None or (inner.type in _IMPORT and not _NO_MODULE.search(inner.message)):
            return _says(cause)
        return broken_because(TestResult(result.id, result.outcome, result.file, "", inner), project) or ""
    if project.owns(name):
        return ""
    return _says(
        cause,
        f"; {name.split('.')[0]!r} is not installed, not of this project, and the story does not name it",
    )


def _unbound(cause: Cause, result: TestResult, _project: Project) -> str | None:
    """A name that the test file itself lacks; nobody can build that elsewhere."""
    if cause.type not in _UNBOUND or cause.file is None or result.file is None:
        return None
    is_own = (
        PurePosixPath(cause.file).parts[-len(PurePosixPath(result.file).parts) :]
        == PurePosixPath(result.file).parts
    )
    return _says(cause, " in the test file itself") if is_own else None


def _fixture(cause: Cause, result: TestResult, _project: Project) -> str | None:
    if cause.type not in _NOT_A_TEST:
        return None
    match = _NO_FIXTURE.search(result.detail)
    return match[0] if match else _says(cause)


def _unloadable(cause: Cause, result: TestResult, _project: Project) -> str | None:
    """What a runner refuses by its own word, such as a marker that it does not know."""
    if result.id == result.file and cause.type in ("Failed", "CollectError"):
        return _says(cause)
    return None


_JUDGES: tuple[Callable[[Cause, TestResult, Project], str | None], ...] = (
    _told,
    _absent_in_node,
    _syntax,
    _absent,
    _unbound,
    _fixture,
    _unloadable,
)
"""Each says why a test is broken, `""` that it is not, None that it cannot tell."""
