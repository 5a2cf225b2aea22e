"""Scripts of the project that a check runs: those that its command calls, and those that these call in turn.

What stands where a command stands counts, the first argument of an interpreter, and what an option names: any other
word may name the product that is checked. All of it is read from the commit that attempts start from, never from an
attempt.
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
from ringfence.check.protected_names import PRODUCT_EXECUTABLES, TOOL_FILES, matches_any
from ringfence.check.tree import SYMLINK, TreeEntry

_LARGEST = 1 << 20
_MOST_LINKS = 40
_BREAKS = re.compile(r"[;&|(){}`\n]+")
_ASSIGNMENT = re.compile(r"\w+=")
_INTERPRETER = re.compile(
    r"(?:ba|da|z|k)?sh|python[\d.]*|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|source|\."
)
_BEFORE = frozenset(
    {
        "!", "[", "[[", "command", "do", "elif", "else", "env", "exec", "if", "nice", "npx", "then", "time", "until",
        "while", "xargs", "sudo",
    }
)  # fmt: skip
"""Words before a command that are no part of it."""
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
        self.targets = set[str]()
        """Names of makefiles' targets: make does not work on a target of which there is a file."""
        for command in commands:
            for word, is_shell in _called_in(command):
                self._take(
                    word, is_shell=is_shell, is_wanted=lambda path: not matches_any(path, PRODUCT_EXECUTABLES)
                )
            for named in named_by_options(command):
                self._take_named(named, "", is_direct=True)
        self.named |= self.paths - self._configured
        for path in configuration:
            self._read_configuration(path, commands)
        while self._waiting:
            directory, text = self._waiting.pop()
            for word, is_shell in _called_in(text):
                for place in {posixpath.join(directory, word), word}:
                    self._take(place, is_shell=is_shell, is_wanted=lambda path: matches_any(path, _OF_CHECKS))
            for named in named_by_options(text):
                self._take_named(named, directory, is_direct=False)

    def _read_configuration(self, path: str, commands: Collection[str]) -> None:
        directory, _, name = path.rpartition("/")
        text = _text(self._files[path])
        if name in _PYTEST_FILES:
            self._take_plugins(text, directory)
        if name == "conftest.py":
            for named in plugins_of_conftest(text):
                self._take_named(named, directory, is_direct=True)
        if matches_any(path, _MAKE_FILES):
            self._read_makefile(directory, text)
        elif name == "package.json":
            document = _json(text)
            self._waiting += [(directory, script) for script in _test_scripts(document, commands)]
            self._load(directory, json.dumps([document.get(section) for section in _NODE_SECTIONS]))
        elif matches_any(path, _NODE_CONFIGURATION):
            self._load(directory, text)

    def _read_makefile(self, directory: str, text: str) -> None:
        self._waiting.append((directory, text))
        targets = {word for found in _TARGETS.findall(text) for word in found.split()}
        included = {word for found in _INCLUDE.findall(text) for word in found.split()}
        self.targets |= {posixpath.normpath(posixpath.join(directory, word)) for word in targets}
        self.paths |= {posixpath.normpath(posixpath.join(directory, word)) for word in included}

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
                or path in self.paths
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
                self._read_makefile(posixpath.dirname(path), _text(entry))
            elif named.kind == "arguments":
                for each in named_by_options("pytest " + " ".join(_text(entry).split())):
                    self._take_named(each, directory, is_direct=is_direct)

    def _take_plugins(self, text: str, directory: str) -> None:
        for named in plugins_of_configuration(text):
            self._take_named(named, directory, is_direct=True)

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
        ways, path = list[str](), posixpath.normpath(word)
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


def _text(entry: TreeEntry) -> str:
    return entry.data[:_LARGEST].decode("utf-8", "surrogateescape") if entry.is_file else ""


def _called_in(text: str) -> Iterator[tuple[str, bool]]:
    """The paths that shell commands run as programs, or give to an interpreter first; whether that is a shell."""
    for part in _BREAKS.split(text.replace("\\\n", " ")):
        words = [word.strip("'\"") for word in part.split()]
        words[:1] = [word.lstrip("@-+") for word in words[:1]]  # make's, of a recipe's line
        while words and (words[0] in _BEFORE or _ASSIGNMENT.match(words[0])):
            words.pop(0)
        if not words:
            continue
        name = words[0].rpartition("/")[2]
        if _INTERPRETER.fullmatch(name):
            is_shell = name.endswith(("sh", "source", "."))
            flags = {word for word in words[1:] if word.startswith("-")}
            arguments = [word for word in words[1:] if not word.startswith("-")]
            if is_shell and any("c" in flag for flag in flags if not flag.startswith("--")):
                yield from _called_in(" ".join(arguments))
            elif arguments and not {"-m", "-c", "-e", "--eval"} & flags:
                yield arguments[0], is_shell
        elif "/" in words[0]:
            yield words[0], False


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
