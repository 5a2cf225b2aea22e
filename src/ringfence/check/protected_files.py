"""The protected files of a tree: tests and everything else that decides what its checks say.

An attempt is judged on an assembled tree: the commit with the story's tests, and of the attempt's changes those that do
not touch a protected file. So each protected file is as it was, and no new one is there. Protection is decided by
path; contents are read only for symbolic links, NUL characters and Rust tests.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property

from ringfence.check import protected_names
from ringfence.check.project_scripts import Scripts
from ringfence.check.tree import SYMLINK, ReadEntry, TreeEntry, folded, is_plain_path
from ringfence.frozen import frozen

_WORD = re.compile(r"[^\s;&|()<>`\"'$=]+")
_READS_IGNORED = "exclude[-_]gitignore"
"""An option of mypy's."""
_LINTERS = re.compile(
    rf"\b(?:{'|'.join(protected_names.LINTERS_WITH_IGNORE_FILES)}|{_READS_IGNORED})\b".encode()
)
_SOURCES = ("src", "lib", "python")
_MODULE_FILES = (".py", ".pyc", ".pyo", ".so", ".pyd")
_PYTHON = ("pytest", "unittest")
_IRRELEVANT_TO_CHECKS = frozenset({".gitattributes", ".envrc"})
"""They change what git checks out and what a shell begins with, and neither happens in the check of a run."""


@frozen
class Conventions:
    """The conventions by which files of a tree are tests or configuration, as its checks determine them.

    Attributes:
        runners: The test runners of the checks; empty: not known, so that the conventions of all runners count.
        commands: Shell commands of the checks.
        story_commands: Shell commands of the story's own checks. The programs that they call may be what it builds.
        tests: Shell patterns of further paths that are tests; `*` matches slashes, too.
    """

    runners: frozenset[str] = frozenset()
    commands: tuple[str, ...] = ()
    story_commands: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def uses(self, *runners: str) -> bool:
        """Whether one of some runners may run the tests."""
        return not self.runners or not self.runners.isdisjoint(runners)

    def is_test(self, path: str) -> bool:
        """Whether a path is a test, or lies where tests keep their helpers and data."""
        runners = self.runners or protected_names.TEST_FILES.keys()
        return any(_is_test_of(runner, path) for runner in runners) or any(
            fnmatchcase(path, pattern) for pattern in self.tests
        )

    def calls(self, tool: str) -> bool:
        """Whether a command calls a program of this name, by whatever path."""
        return tool in self._programs

    @cached_property
    def _programs(self) -> frozenset[str]:
        words = (
            word for command in (*self.commands, *self.story_commands) for word in _WORD.findall(command)
        )
        return frozenset(word.rpartition("/")[2] for word in words)

    @cached_property
    def configuration(self) -> protected_names.Patterns:
        """Patterns of the files that say how these checks run."""
        runners = self.runners or protected_names.CONFIGURATION_FILES.keys()
        files = [protected_names.CONFIGURATION_FILES[runner] for runner in ("", *sorted(runners - {""}))]
        groups = (*files, protected_names.LINTER_FILES, self.tool_files)
        return tuple(dict.fromkeys(pattern for group in groups for pattern in group))

    @cached_property
    def tool_files(self) -> protected_names.Patterns:
        """Patterns of the files of the tools that these checks call."""
        groups = [files for tool, files in protected_names.TOOL_FILES.items() if self.calls(tool)]
        return tuple(dict.fromkeys(pattern for group in groups for pattern in group))

    @cached_property
    def packages(self) -> protected_names.Patterns:
        """Patterns of the directories that a runner takes installed packages from."""
        groups = [files for runner, files in protected_names.INSTALLED_PACKAGES.items() if self.uses(runner)]
        groups += [
            files for runner, files in protected_names.VENDORED_PACKAGES.items() if runner in self.runners
        ]
        return tuple(dict.fromkeys(pattern for group in groups for pattern in group))


def _is_test_of(runner: str, path: str) -> bool:
    patterns, others = protected_names.TEST_FILES.get(runner, ()), protected_names.NOT_TESTS.get(runner, ())
    return protected_names.matches_any(path, patterns) and not protected_names.matches_any(path, others)


class ProtectedFiles:
    """The protected files of one tree.

    Args:
        files: All files of the tree that attempts start from.
        conventions: The conventions of the tree's checks.
        reported: Files of which a runner reported tests: they are tests, whatever their names.
        imported: Python modules that tests imported before the story. Those that the tree lacks are installed.
    """

    def __init__(
        self,
        files: Mapping[str, TreeEntry],
        conventions: Conventions,
        *,
        reported: Collection[str] = (),
        imported: Collection[str] = (),
    ) -> None:
        self._files = files
        self._conventions = conventions
        self._imported = frozenset(imported)
        # Tests of Rust may stand in product code, which is compared by its parts (`inline_tests`).
        self._reported = frozenset(
            path for path in reported if not path.endswith(".rs") or conventions.is_test(path)
        )
        configuration = [
            path for path in files if protected_names.matches_any(path, conventions.configuration)
        ]
        self._configuration = conventions.configuration
        self._scripts = Scripts(conventions.commands, files, configuration)
        self._story_scripts = Scripts(conventions.story_commands, files, ()).paths - self._scripts.paths
        if self._calls_linter_with_ignore_files():
            self._configuration += protected_names.IGNORE_FILES

    def _calls_linter_with_ignore_files(self) -> bool:
        """Whether a command calls one, or a file of a tool or a script that a command leads to names one."""
        texts = (
            entry.data
            for path, entry in self._files.items()
            if path in self._scripts.paths or protected_names.matches_any(path, self._conventions.tool_files)
        )
        linters = protected_names.LINTERS_WITH_IGNORE_FILES
        commands = (*self._conventions.commands, *self._conventions.story_commands)
        return (
            any(map(self._conventions.calls, linters))
            or any(map(_LINTERS.search, texts))
            or any(re.search(_READS_IGNORED, command) for command in commands)
        )

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Each protected file that is there, with the reason; in order."""
        reasons = ((path, self._by_name(path)) for path in sorted(self._files))
        return {path: why for path, why in reasons if why is not None}

    def describe(self, *, most: int = 1000) -> tuple[str, ...]:
        """Lines for people: each protected file with the reason, then what is protected although it is not there."""
        lines = [f"{path} {why}" for path, why in list(self.paths.items())[:most]]
        lines += [f"and {len(self.paths) - most} more"] if len(self.paths) > most else []
        runners = sorted(self._conventions.runners or protected_names.TEST_FILES)
        patterns = dict.fromkeys(
            pattern for runner in runners for pattern in protected_names.TEST_FILES.get(runner, ())
        )
        return (
            *lines,
            f"new files that are tests by their names: {', '.join([*patterns, *self._conventions.tests])}",
            f"new configuration of runners, tools and linters: {', '.join(self._configuration)}",
            "new files that would be imported in place of another module, or that lie among installed packages",
        )

    def protection_reason(self, path: str, read: ReadEntry) -> str | None:
        """Why a changed path is protected; None: it is not.

        Args:
            path: Relative to the top of the tree, with slashes.
            read: Returns entries of the attempt's tree.
        """
        if not is_plain_path(path):
            return "is not a valid project path"
        return self._by_name(path) or self._collision_reason(path) or self.shadowing(path, read)

    def is_unlockable_by_story(self, path: str) -> bool:
        """Whether a story that names a path may change it: configuration, and scripts that no command itself calls."""
        return (
            not self._conventions.is_test(path)
            and path not in self._scripts.named
            and (
                protected_names.matches_any(path, self._configuration)
                or self._scripts.may_run(path)
                or path in self._story_scripts
            )
        )

    @property
    def may_be_compiled_with_inline_tests(self) -> bool:
        """Whether tests that a runner runs may stand in files of product code, beside what an attempt may change."""
        return self._conventions.uses("cargo")

    def is_of_story(self, path: str) -> bool:
        """Whether only checks of single stories run a path, so that it is what a story that names it builds."""
        return path in self._story_scripts

    def _by_name(self, path: str) -> str | None:
        if self._conventions.is_test(path) or path in self._reported:
            return "is a test or belongs to tests"
        if protected_names.matches_any(path, self._configuration):
            return "says how checks run"
        if self._scripts.may_run(path) or path in self._story_scripts:
            return "is a script that a check runs"
        if protected_names.matches_any(path, self._conventions.packages):
            return "lies among installed packages"
        return None

    def _collision_reason(self, path: str) -> str | None:
        """Why a new path would hide a protected file, or be the same on a file system that ignores case."""
        if any(
            prefix in self._scripts.targets and prefix not in self._existing for prefix in _prefixes(path)
        ):
            return "stands in place of a target of make"
        if path in self._above:
            return "stands in place of a directory of protected files"
        for prefix in _prefixes(path):
            if prefix != path and prefix in self.paths:
                return f"would replace the protected file {prefix!r} by a directory"
            spelled = self._spelled.get(_folded(prefix))
            if spelled is not None and spelled != prefix:
                return f"differs from {spelled!r}, which is protected, only in case or Unicode form"
        return None

    @cached_property
    def _existing(self) -> frozenset[str]:
        """All files and directories of the tree."""
        return frozenset(prefix for path in self._files for prefix in _prefixes(path))

    @cached_property
    def _above(self) -> frozenset[str]:
        return frozenset(prefix for path in self.paths for prefix in _prefixes(path) if prefix != path)

    @cached_property
    def _spelled(self) -> dict[str, str]:
        return {_folded(prefix): prefix for path in self.paths for prefix in _prefixes(path)}

    def shadowing(self, path: str, read: ReadEntry) -> str | None:
        """Why a new path would be imported in place of a module of the runner or of a tested one; None: it is not."""
        if path in self._files:
            return None
        if self._conventions.uses("maven") and protected_names.matches_any(
            path, protected_names.JAVA_LIBRARIES
        ):
            return "would be taken in place of a library that runs the tests"
        if not self._conventions.uses(*_PYTHON):
            return None
        entry = read(path)
        if entry is None or not (path.endswith(_MODULE_FILES) or self._may_be_directory(path, entry, read)):
            return None
        return next(self._python_shadows(path, read), None)

    def _may_be_directory(self, path: str, entry: TreeEntry, read: ReadEntry) -> bool:
        """Whether it is a link, but not to a file."""
        if entry.mode != SYMLINK:
            return False
        target = entry.data.decode("utf-8", "surrogateescape")
        there = read(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        return there is None or not there.is_file

    def _python_shadows(self, path: str, read: ReadEntry) -> Iterator[str]:
        module = _module_of(path)
        directory, _, name = module.rpartition("/")
        is_installed = name in self._imported and not {f"{module}.py", module} & self._existing
        if directory in self._import_roots and (name in protected_names.SHADOWED_MODULES or is_installed):
            yield f"would be imported in place of the module {name!r}"
        if path != f"{module}.py" and read(f"{module}.py") is not None:
            yield f"would be imported in place of '{module}.py'"
        if not directory:
            others = [f"{root}/{name}{end}" for root in _SOURCES for end in (".py", "/__init__.py")]
            yield from (
                f"would be imported in place of {other!r}" for other in others if other in self._files
            )

    @cached_property
    def _import_roots(self) -> frozenset[str]:
        """Directories that Python imports from: the top, sources, those of scripts and of tests, and configured ones."""
        tests = {
            path.rpartition("/")[0]
            for path in self.paths
            if path.endswith(".py") and self._conventions.is_test(path)
        }
        roots = {
            directory for directory in {*_SOURCES, *tests} if f"{directory}/__init__.py" not in self._files
        }
        return frozenset({"", *roots, *self._scripts.import_roots})


def decisive_changes(
    changed: Collection[str],
    before: Mapping[str, TreeEntry],
    after: ReadEntry,
    conventions: Conventions,
    *,
    protected: Collection[str] | None,
) -> dict[str, str]:
    """Which of a run's changes determine the result of its check regardless of the code, each with the reason.

    Of tests that is `conftest.py` alone: which others may change, the user says by patterns (`sandbox.protect`).

    Args:
        changed: Paths that differ between the states before and after the run.
        before: All files of the state before it, with the contents of those that `says_what_checks_run` names.
        after: Returns entries of the state after it.
        conventions: Of the check.
        protected: Files of the state before that the user protects. None: nothing is protected, and only new files
            that Python would take for the test runner itself count, as these have no honest use.
    """
    is_protected = protected is not None
    files = ProtectedFiles(before, conventions if is_protected else Conventions(frozenset(_PYTHON)))
    above = {folder for path in protected or () for folder in _prefixes(posixpath.dirname(path))}
    found: dict[str, str] = {}
    for path in changed:
        directory, _, name = path.rpartition("/")
        why: str | None = None
        if not is_protected:
            is_of_runner = any(
                part.split(".")[0] in protected_names.RUNNER_MODULES for part in path.split("/")
            )
            why = files.shadowing(path, after) if is_of_runner else None
        elif name == "__init__.py" and directory in above:
            why = "is imported before the protected tests below it"
        elif name == "conftest.py" or not (conventions.is_test(path) or name in _IRRELEVANT_TO_CHECKS):
            why = files.protection_reason(path, after)
        found |= {path: why} if why else {}
    return found


def says_what_checks_run(path: str, conventions: Conventions) -> bool:
    """Whether the contents of a file may name further files that a check runs."""
    return protected_names.matches_any(path, conventions.configuration) or path.endswith((".sh", ".bash"))


def _prefixes(path: str) -> Iterator[str]:
    """`a`, `a/b`, `a/b/c` of `a/b/c`."""
    parts = path.split("/")
    return ("/".join(parts[: count + 1]) for count in range(len(parts)))


def _folded(path: str) -> str:
    return "/".join(folded(part) for part in path.split("/"))


def _module_of(path: str) -> str:
    """The path of the module or package that a file makes, without an ending."""
    directory, _, name = path.rpartition("/")
    return directory if name.startswith("__init__.") else path[: len(path) - len(name)] + name.split(".")[0]
