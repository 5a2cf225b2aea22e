"""Detects a repository's checks (tests, type checkers, linters) from its files, without running any of its code.

A kind of check that is not found is reported as missing; it never counts as green.
"""

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from ringfence.check.report import Check, Kind
from ringfence.check.runner.registry import runner_of
from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen

_MAX_FILE_BYTES = 1_000_000
_MAX_DEPTH = 12
Read = Callable[[str], bytes | None]


class ProjectFiles:
    """Looks up a project's files by name, and reads them.

    Files in `node_modules` and files in 12 or more nested directories are left out.

    Args:
        files: Paths, relative to the root.
        read: Returns the bytes of the file at a path, or None if the file does not exist.
    """

    def __init__(self, files: Collection[str], read: Read) -> None:
        self.files = sorted(
            file
            for file in files
            if file.count("/") < _MAX_DEPTH and "node_modules" not in file.split("/")[:-1]
        )
        self._all = frozenset(self.files)
        self._top = {file for file in self.files if "/" not in file}
        self._read = read

    def has(self, *patterns: str) -> bool:
        """Whether a file at the root matches one of the patterns; `**/` patterns match at any depth."""
        return any(
            any(fnmatchcase(PurePosixPath(file).name, pattern[3:]) for file in self.files)
            if pattern.startswith("**/")
            else any(fnmatchcase(file, pattern) for file in self._top)
            for pattern in patterns
        )

    def contains(self, path: str) -> bool:
        """Whether there is a file at a path."""
        return path in self._all

    def named(self, *patterns: str) -> list[str]:
        """Return the files whose name matches one of the patterns, at any depth."""
        return [
            file
            for file in self.files
            if any(fnmatchcase(PurePosixPath(file).name, each) for each in patterns)
        ]

    def text(self, path: str) -> str:
        """Return a file's text; empty if the file does not exist or is larger than 1,000,000 bytes."""
        data = self._read(path) or b""
        return data.decode("utf-8", "replace") if len(data) <= _MAX_FILE_BYTES else ""

    def toml(self, path: str) -> dict[str, Any]:
        """Return a TOML file's content; empty if the file cannot be parsed."""
        try:
            return tomllib.loads(self.text(path))
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}

    def json(self, path: str) -> dict[str, Any]:
        """Return a JSON file's content; empty if the file cannot be parsed or holds no object."""
        try:
            found = json.loads(self.text(path) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def ini(self, path: str) -> dict[str, frozenset[str]]:
        """Return the names of the options in each section of an ini file; empty if the file cannot be parsed."""
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(self.text(path))
        except configparser.Error:
            return {}
        return {name: frozenset(parser.options(name)) for name in parser.sections()}

    def tool(self, name: str) -> bool:
        """Whether pyproject.toml configures a tool."""
        tools = self.toml("pyproject.toml").get("tool")
        return isinstance(tools, dict) and name in tools

    def section(self, name: str, *paths: str) -> bool:
        """Whether one of the ini files has the section."""
        return any(re.search(rf"^\[{re.escape(name)}[\]:]", self.text(path), re.MULTILINE) for path in paths)


@frozen
class Detected:
    """The checks of a repository, and those that it lacks."""

    checks: tuple[Check, ...]
    missing_checks: tuple[str, ...]
    """A message for the user and the report about each kind of check that was not found."""


def detect(files: Collection[str], read: Read, *, commands: Mapping[Kind, str] | None = None) -> Detected:
    """Detect the checks of a repository.

    Args:
        files: Its paths, relative to its root.
        read: Returns the bytes of the file at a path, or None if the file does not exist.
        commands: Configured commands by kind. One replaces the checks that would be detected of its kind.

    Raises:
        ConfigurationError: No way to run tests was found, and none is configured.
    """
    project = ProjectFiles(files, read)
    configured = dict(commands or {})
    checks = [_configured(kind, command) for kind, command in configured.items()]
    languages, missing_checks = list[str](), list[str]()
    for language, finders in LANGUAGES.items():
        if not project.has(*LANGUAGE_FILES[language]):
            continue
        languages.append(language)
        for kind, (looked_for, find) in finders.items():
            if kind in configured:
                continue
            found = find(project)
            checks += found
            if found or looked_for is None:
                continue
            what = (
                f"for {language} (looked for {looked_for})" if looked_for else f"is supported for {language}"
            )
            missing_checks.append(f"no {_KIND_NAMES[kind]} {what}: not checked")
    if not any(check.kind == "test" for check in checks):
        seen = ", ".join(languages) or "no known language"
        raise ConfigurationError(
            f"no way to run tests was found (languages seen: {seen}); set `test_command` in the stories' file, or "
            "`loop.checks` in ringfence.yaml"
        )
    return Detected(tuple(checks), tuple(missing_checks))


_KIND_NAMES: Mapping[Kind, str] = {
    "test": "tests",
    "type": "type checker",
    "lint": "linter",
    "other": "check",
}


def _configured(kind: Kind, command: str) -> Check:
    return Check(kind, kind, command, TIMEOUTS_S[kind], runner_of(command) if kind == "test" else None)


_MAX_TEST_FILES = 50
TIMEOUTS_S: Mapping[Kind, float] = {"test": 900.0, "type": 600.0, "lint": 300.0, "other": 600.0}
PYTHON_TESTS = ("test_*.py", "*_test.py")
NODE_TESTS = (
    "*.test.[cm]js",
    "*.test.js",
    "*-test.[cm]js",
    "*-test.js",
    "*_test.[cm]js",
    "*_test.js",
    "test-*.js",
    "test.js",
)
_TOP_LEVEL_OPTION = " -t ."
_MYPY_TARGETS = frozenset({"files", "packages", "modules"})
"""Options of mypy that name what it checks if its command does not."""
_NPM_DEFAULT = "no test specified"
"""Part of the test script that `npm init` writes."""


def _python_tests(project: ProjectFiles) -> list[Check]:
    if _uses_pytest(project):
        return [_check("test", "pytest", "python3 -m pytest -q", "pytest")]
    tests = project.named(*PYTHON_TESTS)
    texts = [project.text(file) for file in tests[:_MAX_TEST_FILES]]
    if any("unittest" in text for text in texts):
        return _unittests(project, tests)
    if tests:
        return [_check("test", "pytest", "python3 -m pytest -q", "pytest")]
    return []


def _unittests(project: ProjectFiles, tests: list[str]) -> list[Check]:
    """Return one check for each start directory: unittest's discovery descends into packages only."""
    options = dict.fromkeys(_discovery_options(project, file) for file in tests)
    if "" in options:  # discovery from the root covers all packages
        options = {each: None for each in options if not each.endswith(_TOP_LEVEL_OPTION)}
    names = (
        ["unittest"]
        if len(options) == 1
        else [f"unittest{each.removesuffix(_TOP_LEVEL_OPTION)}" for each in options]
    )
    return [
        _check("test", name, f"python3 -m unittest discover{option}", "unittest")
        for name, option in zip(names, options, strict=True)
    ]


def _discovery_options(project: ProjectFiles, file: str) -> str:
    """Return the options with which `unittest discover` finds a test file."""
    package, directory = "", file.rpartition("/")[0]
    while directory and project.contains(f"{directory}/__init__.py"):
        package, directory = directory, directory.rpartition("/")[0]
    if directory:
        return f" -s {shlex.quote(directory)}"
    return f" -s {shlex.quote(package)}{_TOP_LEVEL_OPTION}" if package else ""


def _uses_pytest(project: ProjectFiles) -> bool:
    if project.has("pytest.ini", ".pytest.ini", "**/conftest.py") or project.tool("pytest"):
        return True
    if project.section("tool:pytest", "setup.cfg") or project.section("pytest", "tox.ini"):
        return True
    dependency_files = [
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "tox.ini",
        *project.named("requirements*.txt", "*requirements.txt"),
    ]
    if any(re.search(r"\bpytest\b", project.text(path)) for path in dependency_files[:_MAX_TEST_FILES]):
        return True
    tests = project.named(*PYTHON_TESTS)[:_MAX_TEST_FILES]
    return any(
        re.search(r"^[ \t]*(?:import|from) pytest\b", project.text(file), re.MULTILINE) for file in tests
    )


def _python_types(project: ProjectFiles) -> list[Check]:
    inis = [project.ini(path) for path in ("mypy.ini", ".mypy.ini", "setup.cfg")]
    if project.tool("mypy") or any(
        name == "mypy" or name.startswith("mypy-") for ini in inis for name in ini
    ):
        options = [
            _table(project.toml("pyproject.toml"), "tool", "mypy").keys(),
            *(ini.get("mypy", ()) for ini in inis),
        ]
        names_files = any(not _MYPY_TARGETS.isdisjoint(names) for names in options)
        return [_check("type", "mypy", "mypy" if names_files else "mypy .")]
    if project.tool("pyright") or project.tool("basedpyright") or project.has("pyrightconfig.json"):
        return [_check("type", "pyright", "pyright")]
    return []


def _python_lint(project: ProjectFiles) -> list[Check]:
    if project.tool("ruff") or project.has("ruff.toml", ".ruff.toml"):
        return [_check("lint", "ruff", "ruff check")]
    if project.has(".flake8") or project.section("flake8", "setup.cfg", "tox.ini"):
        return [_check("lint", "flake8", "flake8")]
    return []


def _node_tests(project: ProjectFiles) -> list[Check]:
    scripts = project.json("package.json").get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(script, str) and script.strip() and _NPM_DEFAULT not in script:
        if runner_of(script) == "node" and "npm " not in script:
            plain = re.sub(r"\s--test-reporter(?:-destination)?[= ]\S+", "", script)
            # Exported, as npm does: the script may be several commands, of which the runner need not be the first.
            command = f'export PATH="$PWD/node_modules/.bin:$PATH"; {plain}'
            return [_check("test", "node --test", command, "node")]
        return [_check("test", "npm test", "npm test --silent")]
    if project.named(*NODE_TESTS):
        return [_check("test", "node --test", "node --test", "node")]
    return []


def _node_types(project: ProjectFiles) -> list[Check]:
    if project.has("tsconfig.json"):
        return [_check("type", "tsc", "node_modules/.bin/tsc --noEmit")]
    return []


def _node_lint(project: ProjectFiles) -> list[Check]:
    found = []
    if project.has("biome.json", "biome.jsonc"):
        found.append(_check("lint", "biome", "node_modules/.bin/biome check"))
    if project.has("eslint.config.*", ".eslintrc", ".eslintrc.*") or "eslintConfig" in project.json(
        "package.json"
    ):
        found.append(_check("lint", "eslint", "node_modules/.bin/eslint ."))
    return found


def _go_lint(project: ProjectFiles) -> list[Check]:
    if project.has(".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json"):
        return [_check("lint", "golangci-lint", "golangci-lint run")]
    return []


def _rust_lint(project: ProjectFiles) -> list[Check]:
    manifest = project.toml("Cargo.toml")
    configured = any(
        "clippy" in part for part in (_table(manifest, "lints"), _table(manifest, "workspace", "lints"))
    )
    if configured or project.has("clippy.toml", ".clippy.toml"):
        return [_check("lint", "clippy", "cargo clippy --offline --all-targets -- -D warnings")]
    return []


def _table(document: dict[str, Any], *path: str) -> dict[str, Any]:
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _constant_finder(*checks: Check) -> Callable[[ProjectFiles], list[Check]]:
    return lambda _project: list(checks)


def _check(kind: Kind, name: str, command: str, runner: str | None = None) -> Check:
    return Check(kind, name, command, TIMEOUTS_S[kind], runner)


Finder = Callable[[ProjectFiles], list[Check]]
LANGUAGE_FILES: Mapping[str, tuple[str, ...]] = {
    "Python": ("pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "**/*.py"),
    "Node": ("package.json", "tsconfig.json", "*.js", "*.mjs", "*.cjs", "*.ts"),
    "Go": ("go.mod",),
    "Rust": ("Cargo.toml",),
    "Java": ("pom.xml",),
}
"""Patterns of files by which a project's languages are recognised."""
LANGUAGES: Mapping[str, Mapping[Kind, tuple[str | None, Finder]]] = {
    "Python": {
        "test": (None, _python_tests),
        "type": ("mypy, pyright", _python_types),
        "lint": ("ruff, flake8", _python_lint),
    },
    "Node": {
        "test": (None, _node_tests),
        "type": ("tsc", _node_types),
        "lint": ("eslint, biome", _node_lint),
    },
    "Go": {
        "test": (None, _constant_finder(_check("test", "go test", "go test ./...", "go"))),
        "type": (None, _constant_finder(_check("type", "go vet", "go vet ./..."))),
        "lint": ("golangci-lint", _go_lint),
    },
    "Rust": {
        "test": (
            None,
            _constant_finder(_check("test", "cargo test", "cargo test --offline --no-fail-fast", "cargo")),
        ),
        "type": (
            None,
            _constant_finder(_check("type", "cargo check", "cargo check --offline --all-targets")),
        ),
        "lint": ("clippy", _rust_lint),
    },
    "Java": {
        "test": (None, _constant_finder(_check("test", "maven", "mvn -o -B -fae test", "maven"))),
        "lint": ("", _constant_finder()),
    },
}
"""By language and kind: what is looked for, and the function that finds it.

None: nothing can be missing. Empty: no such tool is supported.
"""
