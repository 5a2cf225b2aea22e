"""Finds changed files that determine a check's result regardless of the code: settings, scripts, the runner's modules.

Where the user protects the tests, a run that changed one of these cannot have been judged by them: the check is refused
with the file's name. Paths and contents are compared as data; nothing of the workspace is run or opened.
"""

import posixpath
from collections.abc import Collection, Iterator

from ringfence.check.freeze.model import Guard, Item, Read
from ringfence.check.freeze.names import RUNNER_MODULES
from ringfence.check.freeze.parts import Part, may_hold_part, part_of
from ringfence.check.freeze.places import is_test_path
from ringfence.check.freeze.shadowing import python_shadows
from ringfence.check.suite.runners import runner_of

_NOT_OF_CHECKS = frozenset({".gitattributes", ".envrc"})
"""They change what git checks out and what a shell begins with, and neither happens in a check."""
_SAYS = {"runner_config": "says how the check runs", "check_config": "says how strict the check is"}


def guard_of(command: str) -> Guard:
    """What runs a check, by its command; of an unknown runner every runner's files count."""
    runner = runner_of(command)
    return Guard(runners=frozenset({runner} if runner else ()), commands=(command,))


def is_looked_into(path: str, guard: Guard) -> bool:
    """Whether the contents of a changed file matter to `deciding_changes`."""
    return may_hold_part(path, guard)


def runner_shadows(added: Collection[str], after: Read) -> list[str]:
    """New files that Python would take for the test runner itself, and why: such a file has no honest use."""
    return [
        f"{path!r} {shadow.why}"
        for path in added
        if _first_runner_module(path) and (item := after(path)) is not None
        for shadow in python_shadows(path, item, after)
    ]


def _first_runner_module(path: str) -> bool:
    return any(part.split(".")[0] in RUNNER_MODULES for part in path.split("/"))


def deciding_changes(
    changed: Collection[str],
    *,
    before: Read,
    after: Read,
    guard: Guard,
    protected: Collection[str],
    matching: Collection[str],
) -> list[str]:
    """What a run changed of the files that decide its check, each with what it does there.

    Args:
        changed: Paths that differ between the states before and after the run.
        before: Entries of the state before it.
        after: Entries of the state after it.
        guard: From `guard_of`.
        protected: Files of the state before that the user protects.
        matching: Those of the changed paths that the user's patterns match.
    """
    above = {folder for path in protected for folder in _folders(path)}
    found: dict[str, str] = {}
    for path in changed:
        if why := next(_reasons(path, before, after, guard, above), None):
            found[path] = why
    found |= dict.fromkeys(matching, "lies where nothing may be written (sandbox.protect)")
    return [f"{path!r} {why}" for path, why in sorted(found.items())]


def _reasons(path: str, before: Read, after: Read, guard: Guard, above: Collection[str]) -> Iterator[str]:
    name = posixpath.basename(path)
    if name in _NOT_OF_CHECKS:
        return
    old, new = _part(path, before(path), guard), _part(path, after(path), guard)
    if (old and old.data) != (new and new.data):
        yield _SAYS[(new or old or Part("runner_config", b"")).kind]
    if name == "__init__.py" and posixpath.dirname(path) in above:
        yield "is imported before the protected tests below it"
    item = after(path)
    if item is not None and before(path) is None and guard.uses("pytest", "unittest"):
        yield from (shadow.why for shadow in python_shadows(path, item, after))


def _part(path: str, item: Item | None, guard: Guard) -> Part | None:
    if item is None:
        return None
    part = part_of(path, item.data, guard)
    if part is None or part.kind == "test":  # the user decides which tests are protected (sandbox.protect)
        return None
    # The mode is compared too: a symbolic link or an executable behaves differently.
    return Part(part.kind, b"%o\0%s" % (item.mode, part.data)) if part.is_whole else part


def _folders(path: str) -> Iterator[str]:
    folder = posixpath.dirname(path)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)


def changed_tests(changed: Collection[str], guard: Guard) -> list[str]:
    """Those of the changed paths that hold tests, by the conventions of the check's runner."""
    return [path for path in changed if is_test_path(path, guard.runners)]
