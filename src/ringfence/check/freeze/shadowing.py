"""New files that others would be taken for: the runner, a frozen test, a tested module."""

import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property

from ringfence.check.freeze import names
from ringfence.check.freeze.model import SYMLINK, Frozen, Guard, Item, Read, Tampering
from ringfence.check.freeze.places import folded

_ROOTS = ("src", "lib", "python")
_LOADABLE = (".py", ".pyc", ".pyo", ".so", ".pyd")


class Names:
    """Spellings of the frozen paths and of the directories they are in."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen

    @cached_property
    def spelled(self) -> dict[str, str]:
        """How a path or directory is spelled, by what careless file systems make of it."""
        found: dict[str, str] = {}
        for path in self.frozen.files:
            for prefix in prefixes(path):
                found.setdefault(_folded(prefix), prefix)
        return found

    @cached_property
    def directories(self) -> frozenset[str]:
        """All directories that hold a frozen file, at any depth."""
        return frozenset(prefix for path in self.frozen.files for prefix in prefixes(path) if prefix != path)


def prefixes(path: str) -> Iterator[str]:
    """`a`, `a/b`, `a/b/c` of `a/b/c`."""
    parts = path.split("/")
    return ("/".join(parts[: count + 1]) for count in range(len(parts)))


def _folded(path: str) -> str:
    return "/".join(folded(part) for part in path.split("/"))


def shadows(path: str, item: Item, *, guard: Guard, read: Read, known: Names) -> Iterator[Tampering]:
    """What is wrong with a new path because of what it is called.

    Args:
        path: Of the new file, in the candidate.
        item: What is there.
        guard: What runs the checks.
        read: Entries of the candidate.
        known: Of the frozen files.
    """
    yield from _variants(path, known)
    if path in known.directories:
        what = "a symbolic link" if item.mode == SYMLINK else "a file"
        yield Tampering(path, "test_replaced", f"is {what} in place of a directory of frozen files")
    yield from _in_place_of_file(path, known)
    if directory := next((part for part in path.split("/") if part in names.DEPENDENCY_DIRECTORIES), None):
        yield Tampering(
            path,
            "shadow",
            f"is in {directory!r}, where installed packages lie: a runner would be taken from there",
        )
    if guard.uses("pytest", "unittest"):
        yield from python_shadows(path, item, read)
    if guard.uses("maven") and (library := names.JAVA_LIBRARIES.search(path)):
        yield Tampering(
            path, "shadow", f"would be taken in place of {library[1]!r}, which the tests are run by"
        )


def _variants(path: str, known: Names) -> Iterator[Tampering]:
    for prefix in prefixes(path):
        spelled = known.spelled.get(_folded(prefix))
        if spelled is not None and spelled != prefix:
            yield Tampering(
                path,
                "case",
                f"is spelled nearly as {spelled!r}, which is frozen; some file systems tell them not apart",
            )
            return


def _in_place_of_file(path: str, known: Names) -> Iterator[Tampering]:
    for prefix in prefixes(path):
        if prefix != path and prefix in known.frozen:
            yield Tampering(path, "test_replaced", f"makes a directory of {prefix!r}, which is a frozen file")
            return


def python_shadows(path: str, item: Item, read: Read) -> Iterator[Tampering]:
    """What is wrong with a new path since Python would import it in place of another module."""
    for prefix in prefixes(path):
        directory, _, name = prefix.rpartition("/")
        module = name.split(".")[0] if prefix == path and name.endswith(_LOADABLE) else name
        is_known = module in names.SHADOWED_MODULES or (
            module in names.SHADOWED_AT_TOP and directory in ("", *_ROOTS) and _makes(path, prefix)
        )
        if is_known and _is_import_root(directory, read) and _is_python(path, item, read):
            yield Tampering(
                path, "shadow", f"would be imported in place of the module {module!r} by the runner"
            )
            return
    yield from _twice(path, item, read)


def _makes(path: str, module: str) -> bool:
    """Whether with this file there is such a module: a directory alone is taken last."""
    return path == module or (
        path.startswith(f"{module}/__init__.") and path.count("/") == module.count("/") + 1
    )


def _is_python(path: str, item: Item, read: Read) -> bool:
    return path.endswith(_LOADABLE) or _is_linked(path, item, read)


def _is_linked(path: str, item: Item, read: Read) -> bool:
    """Whether it is a link that may lead to a package."""
    if item.mode != SYMLINK:
        return False
    leads_to = item.data.decode("utf-8", "surrogateescape")
    there = read(posixpath.normpath(posixpath.join(posixpath.dirname(path), leads_to)))
    return there is None or not there.is_file


def _is_import_root(directory: str, read: Read) -> bool:
    """Python looks in directories that are no packages; the runner puts those of tests and the top first."""
    return not directory or read(f"{directory}/__init__.py") is None


def _twice(path: str, item: Item, read: Read) -> Iterator[Tampering]:
    """A package and a module of one name in one place, or at the top and below `src`: the first is taken."""
    directory, _, name = path.rpartition("/")
    is_linked = _is_linked(path, item, read)
    package = path if is_linked else directory if name == "__init__.py" else ""
    if package and read(f"{package}.py") is not None:
        yield Tampering(path, "shadow", f"makes a package that is imported in place of '{package}.py'")
    if (
        name.endswith((".so", ".pyd", ".pyc"))
        and read(f"{directory}/{name.split('.')[0]}.py".lstrip("/")) is not None
    ):
        yield Tampering(
            path, "shadow", "would be imported in place of the module of that name, and cannot be read"
        )
    module = package or path.removesuffix(".py")
    if "/" in module or not (package or name.endswith(".py")):
        return
    for other in _elsewhere(module):
        if read(other) is not None:
            yield Tampering(
                path, "shadow", f"would be imported in place of {other!r}, which the tests are about"
            )
            return


def _elsewhere(module: str) -> Iterable[str]:
    """Where a module or package of that name is, below a source root."""
    return [f"{root}/{module}{end}" for root in _ROOTS if module != root for end in (".py", "/__init__.py")]
