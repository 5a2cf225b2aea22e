"""Finds changed files that determine a check's result regardless of the code: settings, scripts, the runner's modules.

Where the user protects the tests, a run that changed one of these cannot have been judged by them: the check is refused
with the file's name. Paths and contents are compared as data; nothing of the workspace is run or opened.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping

from ringfence.check.protected_files import Conventions, ProtectedFiles
from ringfence.check.protected_names import RUNNER_MODULES, matches_any
from ringfence.check.runner.registry import runner_of
from ringfence.check.sections import SECTIONS
from ringfence.check.tree import ReadEntry, TreeEntry

LARGEST_READ = 4 << 20
"""Bytes: a larger file is compared as a whole."""
_NOT_OF_CHECKS = frozenset({".gitattributes", ".envrc"})
"""They change what git checks out and what a shell begins with, and neither happens in a check."""


def conventions_of(command: str) -> Conventions:
    """What counts as a test and as configuration for a check; of an unknown runner every runner's files count."""
    runner = runner_of(command)
    return Conventions(runners=frozenset({runner} if runner else ()), commands=(command,))


def is_read(path: str, conventions: Conventions) -> bool:
    """Whether the contents of a file matter to `deciding_changes`."""
    return matches_any(path, conventions.configuration) or path.endswith((".sh", ".bash"))


def runner_shadows(added: Collection[str], before: Mapping[str, TreeEntry], after: ReadEntry) -> list[str]:
    """New files that Python would take for the test runner itself, and why: such a file has no honest use."""
    protected = ProtectedFiles(before, Conventions(frozenset({"pytest", "unittest"})))
    return [
        f"{path!r} {why}"
        for path in added
        if _names_runner(path) and (why := protected.shadowing(path, after))
    ]


def _names_runner(path: str) -> bool:
    return any(part.split(".")[0] in RUNNER_MODULES for part in path.split("/"))


def deciding_changes(
    changed: Collection[str],
    *,
    before: Mapping[str, TreeEntry],
    after: ReadEntry,
    conventions: Conventions,
    protected: Collection[str],
    matching: Collection[str],
) -> list[str]:
    """What a run changed of the files that decide its check, each with what it does there.

    Args:
        changed: Paths that differ between the states before and after the run.
        before: All files of the state before it, with the contents of those that `is_read` names.
        after: Returns entries of the state after it.
        conventions: From `conventions_of`.
        protected: Files of the state before that the user protects.
        matching: Those of the changed paths that the user's patterns match.
    """
    files = ProtectedFiles(before, conventions)
    above = {folder for path in protected for folder in _folders(path)}
    found: dict[str, str] = {}
    for path in changed:
        if why := next(_reasons(path, files, before, after, conventions, above), None):
            found[path] = why
    found |= dict.fromkeys(matching, "lies where nothing may be written (sandbox.protect)")
    return [f"{path!r} {why}" for path, why in sorted(found.items())]


def _reasons(
    path: str,
    files: ProtectedFiles,
    before: Mapping[str, TreeEntry],
    after: ReadEntry,
    conventions: Conventions,
    above: Collection[str],
) -> Iterator[str]:
    directory, _, name = path.rpartition("/")
    if name in _NOT_OF_CHECKS:
        return
    if name == "__init__.py" and directory in above:
        yield "is imported before the protected tests below it"
    why = files.why(path, after)
    if why is None or (conventions.is_test(path) and name != "conftest.py"):
        return  # the user decides which tests are protected (sandbox.protect)
    if name not in SECTIONS or _section(name, before.get(path), conventions) != _section(
        name, after(path), conventions
    ):
        yield why


def _section(name: str, entry: TreeEntry | None, conventions: Conventions) -> bytes | None:
    """What of a shared file is about checks. Links, and files that are too large to be read, count whole."""
    if entry is None:
        return None
    if not entry.is_file or len(entry.data) > LARGEST_READ:
        return b"%o\0%s" % (entry.mode, entry.data)
    try:
        return SECTIONS[name](entry.data, conventions)
    except RecursionError:
        return entry.data


def _folders(path: str) -> Iterator[str]:
    folder = posixpath.dirname(path)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)


def changed_tests(changed: Collection[str], conventions: Conventions) -> list[str]:
    """Those of the changed paths that hold tests, by the conventions of the check's runner."""
    return [path for path in changed if conventions.is_test(path)]
