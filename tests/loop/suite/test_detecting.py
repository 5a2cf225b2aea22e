"""Which checks a repository has, by its files."""

import json
import subprocess
from pathlib import Path

import pytest

from ringfence.check import Check, detect
from ringfence.check.discovery import Detected
from ringfence.check.runner.registry import runner_of
from ringfence.errors import ConfigurationError


def found(files: dict[str, str], **commands: str) -> Detected:
    """What is detected in these files."""
    return detect(files, lambda path: files[path].encode() if path in files else None, commands=commands)  # type: ignore[arg-type]


def checks_of(detected: Detected) -> list[Check]:
    """The checks that run tests."""
    return [check for check in detected.checks if check.kind == "test"]


TESTS = {
    "pytest by its section": ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "pytest"),
    "pytest by a dependency": ({"requirements-dev.txt": "pytest>=8\n"}, "pytest"),
    "pytest by an import": ({"tests/test_a.py": "import pytest\n"}, "pytest"),
    "pytest by plain functions": ({"test_a.py": "def test_a(): pass\n"}, "pytest"),
    "unittest": ({"tests/test_a.py": "import unittest\n"}, "unittest"),
    "node by its script": ({"package.json": '{"scripts": {"test": "node --test test/"}}'}, "node"),
    "node by its files": ({"package.json": "{}", "a.test.js": ""}, "node"),
    "another of npm's": ({"package.json": '{"scripts": {"test": "jest"}}'}, None),
    "go": ({"go.mod": "module a\n"}, "go"),
    "cargo": ({"Cargo.toml": "[package]\n"}, "cargo"),
    "maven": ({"pom.xml": "<project/>"}, "maven"),
}


@pytest.mark.parametrize("case", TESTS)
def test_how_tests_are_run(case: str) -> None:
    """Each language's runner is found by what its projects have."""
    files, runner = TESTS[case]
    (check,) = checks_of(found(files))
    assert check.runner == runner
    assert runner is None or runner_of(check.command) == runner


@pytest.mark.parametrize(
    ("files", "starts"),
    [
        (["test_a.py", "pkg/__init__.py", "pkg/test_b.py"], [""]),
        (["tests/__init__.py", "tests/test_a.py"], [" -s tests -t ."]),
        (["tests/test_a.py", "tests/deep/__init__.py", "tests/deep/test_b.py"], [" -s tests"]),
        (["my tests/$(id)/test_a.py"], [" -s 'my tests/$(id)'"]),
        (["a/__init__.py", "a/test_a.py", "b/test_b.py"], [" -s a -t .", " -s b"]),
    ],
    ids=["top", "package", "directory", "quoted", "several"],
)
def test_unittest_is_told_where_tests_are(files: list[str], starts: list[str]) -> None:
    """It looks into packages only, and so has to start in each directory that is none."""
    checks = checks_of(found(dict.fromkeys(files, "import unittest\n")))
    assert [check.command.removeprefix("python3 -m unittest discover") for check in checks] == starts
    assert len({check.name for check in checks}) == len(starts)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"README.md": ""},
        {"a.py": "x = 1\n"},
        {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
    ],
)
def test_no_tests(files: dict[str, str]) -> None:
    """A repository without a way to run tests is refused, with what to configure."""
    with pytest.raises(ConfigurationError, match="set `test_command`"):
        found(files)


def test_a_command_instead() -> None:
    """A command that is given replaces what would be found, and its runner is known by its words."""
    detected = found({"test_a.py": ""}, test="uv run pytest -q", lint="make lint")
    assert [(check.kind, check.command, check.runner) for check in detected.checks] == [
        ("test", "uv run pytest -q", "pytest"),
        ("lint", "make lint", None),
    ]
    assert detected.missing_checks == ("no type checker for Python (looked for mypy, pyright): not checked",)


def test_what_is_lacking_is_said() -> None:
    """A language without a linter or type checker is reported as such: nothing green stands for it."""
    detected = found({"test_a.py": "", "package.json": "{}", "biome.json": "{}", "pom.xml": "<project/>"})
    assert [check.name for check in detected.checks] == ["pytest", "biome", "maven"]
    assert detected.missing_checks == (
        "no type checker for Python (looked for mypy, pyright): not checked",
        "no linter for Python (looked for ruff, flake8): not checked",
        "no type checker for Node (looked for tsc): not checked",
        "no linter is supported for Java: not checked",
    )


def test_all_at_once() -> None:
    """A repository of two languages has the checks of both."""
    files = {
        "pyproject.toml": "[tool.pytest]\n[tool.mypy]\nfiles = ['src']\n[tool.ruff]\n",
        "package.json": '{"scripts": {"test": "node --test --test-reporter=tap"}, "eslintConfig": {}}',
        "tsconfig.json": "{}",
    }
    detected = found(files)
    assert [check.command for check in detected.checks] == [
        "python3 -m pytest -q",
        "mypy",
        "ruff check",
        'export PATH="$PWD/node_modules/.bin:$PATH"; node --test',
        "node_modules/.bin/tsc --noEmit",
        "node_modules/.bin/eslint .",
    ]
    assert detected.missing_checks == ()


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"setup.cfg": "[options]\npackages = find:\n[mypy]\nstrict = true\n"}, "mypy ."),
        ({"setup.cfg": "[options]\npackages = find:\n[mypy]\nfiles = src\n"}, "mypy"),
        ({"mypy.ini": "[mypy]\npackages: a\n"}, "mypy"),
        ({"mypy.ini": "[mypy-foreign.*]\nignore_missing_imports = true\n"}, "mypy ."),
        ({"setup.cfg": "[options]\npackages = find:\n# [mypy\n"}, None),
    ],
    ids=["another section's packages", "files", "packages", "one module's section", "a comment"],
)
def test_mypy_has_a_target(files: dict[str, str], command: str | None) -> None:
    """Without one it fails always: the directory is its target unless its own section names another."""
    detected = found({"test_a.py": "", **files})
    assert [check.command for check in detected.checks if check.kind == "type"] == (
        [command] if command else []
    )


def test_a_script_of_several_commands_finds_the_projects_programs(tmp_path: Path) -> None:
    """As with npm, each of its commands does, also those in parentheses."""
    script = "(true && own-program; node --test)"
    (check,) = checks_of(found({"package.json": json.dumps({"scripts": {"test": script}})}))
    program = tmp_path / "node_modules" / ".bin" / "own-program"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", check.command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.startswith("found\n"), done
    assert check.runner == "node"


def test_only_installed_packages_are_left_out() -> None:
    """A directory whose name ends alike is the project's own."""
    assert checks_of(found({"my_node_modules/a.test.js": "", "package.json": "{}"}))
    with pytest.raises(ConfigurationError):
        found({"sub/node_modules/a.test.js": "", "package.json": "{}"})


@pytest.mark.parametrize(
    "text", ["[tool", "\x00", "[tool]\nmypy = 3\n", "tool = 7\n", "[[tool]]\n", "\n" * 200_000]
)
def test_files_that_are_broken(text: str) -> None:
    """A configuration that cannot be read, or is not shaped as it should be, is as if it were not there."""
    files = {"pyproject.toml": text, "package.json": text, "Cargo.toml": text, "test_a.py": text}
    assert {check.runner for check in checks_of(found(files))} >= {"pytest", "cargo"}
