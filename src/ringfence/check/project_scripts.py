"""Scripts of the project that a check runs: those that its command calls, and those that these call in turn.

What stands where a command stands counts, the script of an interpreter, also behind programs that run others, and what
an option names: any other word may name the product that is checked. All of it is read from the commit that attempts
start from, never from an attempt.
"""

import json
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ringfence.check.command_options import (
    NODE_CODE,
    NamedByOption,
    named_by_options,
    plugins_of_configuration,
    plugins_of_conftest,
)
from ringfence.check.command_words import called_in, definitions, expand
from ringfence.check.protected_names import PRODUCT_EXECUTABLES, TOOL_FILES, matches_any
from ringfence.check.tree import SYMLINK, TreeEntry

_LARGEST = 1 << 20
_MOST_LINKS = 40
_RUNS_TESTS = re.compile(
    rb"\b(?:py\.?test|unittest|doctest|nose2|tox|nox|jest|mocha|vitest|node:test|pytest\.main"
    rb"|(?:go|cargo|npm|pnpm|yarn|mvn|deno|bun|dotnet|gradle)['\", \t]{1,4}(?:run['\", \t]{1,4})?(?:test|verify)"
    rb"|ruff|mypy|pyright|flake8|pylint|eslint|golangci-lint|clippy)\b"
)
"""What a program that runs tests or linters names in its text."""
_IMPORT_PATH = re.compile(r"\bPYTHONPATH[ \t]*[:?+]?=[ \t]*[\"']?([^\s\"']{1,1000})")
_CONFIGURED_PATH = re.compile(
    r"^[ \t]*+python_?path[ \t]*+=[ \t]*(\[[^\]]{0,2000}|[^\n]{0,1000}(?:\n[ \t]+[^\n]{1,200}){0,20})",
    re.MULTILINE,
)
_TOP = re.compile(r"^(?:\$[({]?(?:CURDIR|PWD|PROJECT_ROOT|ROOT)[)}]?|\{toxinidir\}|\{rootdir\})(?:/|\Z)")
"""Names of the top of the tree at the beginning of a path."""
_GLOB = re.compile(r"[*?]")
_WILDCARD = re.compile(r"\$[({]wildcard[ \t]+([^)}\n]{1,1000})[)}]")
_INCLUDE = re.compile(r"^-?s?include\s+(.+)$", re.MULTILINE)
_SHELL = re.compile(rb"#![^\n]*\b(?:ba|da|z|k)?sh\b")
_MAKE_FILES = (*TOOL_FILES["make"], *TOOL_FILES["just"])
_TARGETS = re.compile(r"^(\w[\w./+ -]*+)\s*+::?(?!=)", re.MULTILINE)
_OF_CHECKS = (
    *("*.sh", "*.bash", "*test*", "*check*", "*lint*", "*verify*"),
    *("script/**", "scripts/**", "ci/**", ".github/**", "tools/**", "hack/**"),
)
"""Of the programs that a makefile or a script calls, those that are called so are taken for parts of the check."""
_CHECK_PARTS = re.compile(r"\w*(?:test|check|lint|verify)\w*|scripts?|ci|tools|hack")
"""The same of the parts of a module's name."""
_ROOTS = ("", "src", "lib", "python")
"""Directories that Python imports from."""
_PYTEST_FILES = (
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
)
_TEST_SCRIPT = re.compile(r"(?:pre|post)?(?:test|lint|type-?check|check|tsc|install|prepare)(?:[:.-].*)?")
_NODE_CONFIGURATION = ("*.config.*", "*.conf.*", ".mocharc", ".mocharc.*", ".taprc", ".nycrc", ".nycrc.*")
_NODE_SECTIONS = ("jest", "vitest", "mocha", "ava", "nyc", "c8", "tap")
_LOADING = re.compile(
    r"\b(?:setupFiles|setupFilesAfterEnv|globalSetup|globalTeardown|testEnvironment|testRunner|runner|reporters|transform"
    r"|resolver|snapshotSerializers|require|file)\b[\"']?\s*[:=]\s*"
    r"(\[[^\]]{0,4000}|\{[^}]{0,4000}|(?:-[^\n]{0,400}\n\s*){1,40}|[^\n,}]{0,400})"
)
"""Options of Node's runners that name files of code which are loaded with the tests."""
_WORD = re.compile(r"[^\s\"'`,()\[\]{}]+")
_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".jsx", ".tsx")


class Scripts:
    """The scripts that some checks lead to.

    Args:
        commands: Shell commands of checks, run at the top of the tree.
        files: All files of the tree.
        configuration: Paths of files that say how checks run: makefiles and the like, and those of Node's runners.
    """

    def __init__(
        self, commands: Collection[str], files: Mapping[str, TreeEntry], configuration: Collection[str]
    ) -> None:
        self._files = files
        self._waiting: list[tuple[str, str]] = []
        self._directories = {path[:end] for path in files for end in _slashes(path)}
        self._configured = set[str]()
        self.paths = set[str]()
        """Those that are there, and files that a makefile would include if they were."""
        self.named = set[str]()
        """Those that a command itself calls, with the links on the way to them."""
        self.import_roots = set[str]()
        """Directories that commands, scripts and configuration have Python import from, and those of its scripts."""
        self.targets = set[str]()
        """Names of makefiles' targets: make does not work on a target of which there is a file."""
        self._globs = set[str]()
        self._makefiles = set[str]()
        for command in map(expand, commands):
            self._add_import_roots("", command)
            for called in called_in(command):
                self._take(
                    called.word,
                    is_shell=called.is_shell,
                    is_wanted=lambda path: not matches_any(path, PRODUCT_EXECUTABLES),
                )
            for named in named_by_options(command):
                self._take_named(named, "", is_direct=True)
        self.named |= self.paths - self._configured
        for path in configuration:
            self._read_configuration(path, commands)
        while self._waiting:
            directory, text = self._waiting.pop()
            text = expand(text)
            self._add_import_roots(directory, text)
            for called in called_in(text):
                for place in {posixpath.join(directory, called.word), called.word}:
                    self._take(place, is_shell=called.is_shell, is_wanted=self._is_of_checks)
            for named in named_by_options(text):
                self._take_named(named, directory, is_direct=False)

        self.import_roots |= {posixpath.dirname(path) for path in self.paths if path.endswith(".py")}
        self._patterns = re.compile("|".join(map(_translate, sorted(self._globs))) or "(?!)")

    def may_run(self, path: str) -> bool:
        """Whether a path is one of the scripts, or would be run or included if it were there."""
        return path in self.paths or self._patterns.match(path) is not None

    def _is_of_checks(self, path: str) -> bool:
        """Whether a program that a makefile or a script calls is a part of the check, by its name or its text."""
        if matches_any(path, _OF_CHECKS):
            return True
        return not matches_any(path, PRODUCT_EXECUTABLES) and bool(
            _RUNS_TESTS.search(self._files[path].data[:_LARGEST])
        )

    def _add_import_roots(self, directory: str, text: str) -> None:
        found = (place for value in _IMPORT_PATH.findall(text) for place in value.split(":"))
        self.import_roots |= {root for place in found for root in _places(directory, place)}

    def _read_configuration(self, path: str, commands: Collection[str]) -> None:
        directory, _, name = path.rpartition("/")
        text = _text(self._files[path])
        if name in _PYTEST_FILES:
            self._take_plugins(text, directory)
        if name == "conftest.py":
            for named in plugins_of_conftest(text):
                self._take_named(named, directory, is_direct=True)
        if matches_any(path, _MAKE_FILES):
            self._read_makefile(path)
        elif name == "package.json":
            document = _json(text)
            self._waiting += [(directory, script) for script in _test_scripts(document, commands)]
            self._load(directory, json.dumps([document.get(section) for section in _NODE_SECTIONS]))
        elif matches_any(path, _NODE_CONFIGURATION):
            self._load(directory, text)

    def _read_makefile(self, path: str) -> None:
        """Read a makefile, and those that it includes, which may not be there yet."""
        waiting = [path]
        while waiting:
            path = waiting.pop()
            entry = self._files.get(path)
            if entry is None or path in self._makefiles:
                continue
            self._makefiles.add(path)
            directory, text = posixpath.dirname(path), _text(entry)
            self._waiting.append((directory, text))
            self.targets |= {
                posixpath.normpath(posixpath.join(directory, word))
                for found in _TARGETS.findall(text)
                for word in found.split()
            }
            for word in _included_by(text):
                for place in _places(directory, word):
                    self._globs |= {place} if _GLOB.search(place) else set()
                    found = self._matching(place)
                    self.paths |= {place, *found}
                    waiting += found

    def _matching(self, pattern: str) -> list[str]:
        """The files that a path means, which may have wildcards."""
        if not _GLOB.search(pattern):
            return [pattern] if pattern in self._files else []
        expression = re.compile(_translate(pattern))
        return [path for path in self._files if expression.match(path)]

    def _take_named(self, named: NamedByOption, directory: str, *, is_direct: bool) -> None:
        """Take what an option names; of modules that a recipe or a script runs, those that are called as checks are."""
        places = {
            directory,
            "",
            *named.directories,
            *(posixpath.join(directory, each) for each in named.directories),
        }
        if named.kind in ("module", "plugin"):
            for root in {
                posixpath.normpath(posixpath.join(place, root)) for place in places for root in _ROOTS
            }:
                self._take_module(root, named, is_direct=is_direct)
            return
        ends = ("", *NODE_CODE) if named.kind == "code" else ("",)
        for path in {
            posixpath.normpath(posixpath.join(place, named.word + end)) for place in places for end in ends
        }:
            entry = self._files.get(path)
            if (
                entry is None
                or path in (self._makefiles if named.kind == "makefile" else self.paths)
                or not named.may_mean(path)
                or matches_any(path, PRODUCT_EXECUTABLES)
            ):
                continue
            before = set(self.paths)
            self._take(path, is_shell=False, is_wanted=lambda _: True)
            if named.kind != "code":
                self._configured |= self.paths - before
            if path.endswith((".ini", ".cfg", ".toml")):
                self._take_plugins(_text(entry), directory)
            if named.kind == "makefile":
                self._read_makefile(path)
            elif named.kind == "arguments":
                for each in named_by_options("pytest " + " ".join(_text(entry).split())):
                    self._take_named(each, directory, is_direct=is_direct)

    def _take_plugins(self, text: str, directory: str) -> None:
        for named in plugins_of_configuration(text):
            self._take_named(named, directory, is_direct=True)
        found = (word for value in _CONFIGURED_PATH.findall(text) for word in _WORD.findall(value))
        self.import_roots |= {root for word in found for root in _places(directory, word)}
        self._add_import_roots(directory, text)

    def _take_module(self, root: str, named: NamedByOption, *, is_direct: bool) -> None:
        """Take a module's file. A package is taken as a whole if it is a plugin, or is called as checks are."""
        parts = named.word.split(".")
        is_of_checks = any(map(_CHECK_PARTS.fullmatch, parts))
        if not all(parts) or not (is_of_checks or is_direct):
            return
        place = posixpath.normpath(posixpath.join(root, *parts))
        is_file, is_plugin = f"{place}.py" in self._files, named.kind == "plugin"
        if is_file and (is_of_checks or is_plugin or len(parts) == 1):
            self.paths.add(f"{place}.py")
        elif place in self._directories and (is_of_checks or (is_plugin and root not in _ROOTS[1:])):
            self.paths |= {path for path in self._files if path.startswith(f"{place}/")}
        elif is_plugin and f"{place}/__init__.py" in self._files:
            self.paths.add(f"{place}/__init__.py")
        else:
            return
        heads = ["/".join(parts[:end]) for end in range(1, len(parts))]
        if is_of_checks:  # each package on the way is run first
            self.paths |= {posixpath.normpath(posixpath.join(root, head, "__init__.py")) for head in heads}

    def _take(self, word: str, *, is_shell: bool, is_wanted: Callable[[str], bool]) -> None:
        """Take a path, each link on the way along it, and where it leads: to change any of them changes the script."""
        if _GLOB.search(word):
            self._globs |= {posixpath.normpath(word)} if is_shell else set()
            for path in self._matching(posixpath.normpath(word)):
                self._take(path, is_shell=is_shell, is_wanted=is_wanted)
            return
        ways, path = list[str](), posixpath.normpath(_TOP.sub("", word))
        for _ in range(_MOST_LINKS):
            parts = path.split("/")
            heads = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
            link = next((head for head in heads if self._is_link(head)), None)
            if link is None:
                break
            ways.append(link)
            target = self._files[link].data.decode("utf-8", "surrogateescape")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(link), target) + path[len(link) :])
        entry = self._files.get(path)
        if entry is None or path in self.paths:
            return
        is_shell = is_shell or path.endswith((".sh", ".bash")) or bool(_SHELL.match(entry.data))
        if is_shell or is_wanted(path):
            self.paths |= {path, *ways}
            self._waiting += [(posixpath.dirname(path), _text(entry))] if is_shell else []

    def _is_link(self, path: str) -> bool:
        return path in self._files and self._files[path].mode == SYMLINK

    def _load(self, directory: str, text: str) -> None:
        """Take the files of code that the configuration of one of Node's runners has loaded, by their whole paths."""
        words = (word for named in _LOADING.findall(text) for word in _WORD.findall(named))
        places = {
            posixpath.normpath(posixpath.join(directory, word.removeprefix("<rootDir>/"))) for word in words
        }
        named = {f"{place}{end}" for place in places for end in ("", *_CODE)}
        self.paths |= {path for path in named if path in self._files and path.endswith(_CODE)}


def _slashes(path: str) -> Iterator[int]:
    return (place for place, character in enumerate(path) if character == "/")


def _translate(pattern: str) -> str:
    """A regular expression of a pattern of paths; as in a shell, `*` matches no slash."""
    return re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") + r"\Z"


def _places(directory: str, word: str) -> set[str]:
    """Where a path may lead that is written in a file of a directory: from there, or from the top."""
    word = _TOP.sub("", word.strip("\"'"))
    found = {posixpath.normpath(posixpath.join(place, word)) for place in (directory, "")}
    return {"" if place == "." else place for place in found if not place.startswith(("/", ".."))}


def _included_by(text: str) -> list[str]:
    """Files that a makefile includes, and those that it has make or its shells read before all others."""
    variables = ("MAKEFILES", "SHELL", "BASH_ENV", "ENV")
    named = _INCLUDE.findall(expand(text))
    named += [value for name, value in definitions(text).items() if name in variables]
    return [word for each in named for word in _WILDCARD.sub(r"\1", each).split()]


def _text(entry: TreeEntry) -> str:
    return entry.data[:_LARGEST].decode("utf-8", "surrogateescape") if entry.is_file else ""


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _test_scripts(document: Mapping[str, Any], commands: Collection[str]) -> Iterator[str]:
    """Those of npm's scripts that a check may call."""
    scripts = document.get("scripts")
    named = {word for command in commands for word in command.split()}
    for name, script in scripts.items() if isinstance(scripts, dict) else ():
        if _TEST_SCRIPT.fullmatch(name) or name in named:
            yield str(script)
