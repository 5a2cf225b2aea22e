"""What an implementor must not do, each kind by an example, beside what it may."""

import os
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import slow_after
from tests.loop.freeze.trees import Tree, attempt, items, rules

from ringfence.check.freeze import Item, freeze
from ringfence.check.freeze.model import SYMLINK, Guard, Rule
from ringfence.check.freeze.tampering import broken

PYTHON: dict[str, bytes] = {
    "src/shop/__init__.py": b"",
    "src/shop/cart.py": b"def total(prices):\n    return 0\n",
    "tests/test_cart.py": b"from shop.cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
    "tests/data/prices.json": b"[1, 2]",
    "tests/conftest.py": b"",
    "pyproject.toml": b'[project]\nname = "shop"\n'
    b'[tool.pytest.ini_options]\naddopts = "-q"\n[tool.ruff]\nline-length = 90\n',
    "setup.cfg": b"[metadata]\nname = shop\n[tool:pytest]\naddopts = -q\n",
    "Makefile": b"CHECK := pytest\ntest: lint\n\t$(CHECK)\nlint:\n\truff check\nrun:\n\tpython -m shop\n",
}
PYTEST = Guard(frozenset({"pytest"}), ("make test",))
NODE: dict[str, bytes] = {
    "package.json": b'{"name": "shop", "scripts": {"test": "node --test", "start": "node ."}, "jest": {"bail": true}}',
    "lib/cart.js": b"exports.total = () => 0;\n",
    "test/cart.test.js": b"require('node:test')('total', () => {});\n",
}
GO: dict[str, bytes] = {
    "go.mod": b"module shop\n\ngo 1.22\n",
    "cart.go": b"package shop\n",
    "cart_test.go": b'package shop\n\nimport "testing"\n\nfunc TestTotal(t *testing.T) {}\n',
}
LIB = (
    b"pub fn total() -> i32 { 0 }\n\n"
    b"#[cfg(test)]\nmod tests {\n    #[test]\n    fn adds() { assert_eq!(super::total(), 3); }\n}\n"
)
CARGO: dict[str, bytes] = {
    "Cargo.toml": b'[package]\nname = "shop"\nversion = "0.1.0"\n',
    "src/lib.rs": LIB,
    "tests/cart.rs": b"#[test]\nfn total() {}\n",
}
POM = b"""<project xmlns="http://maven.apache.org/POM/4.0.0"><artifactId>shop</artifactId>
<properties><java.version>17</java.version></properties><build><plugins>%b</plugins></build></project>"""
SUREFIRE = b"<plugin><artifactId>maven-surefire-plugin</artifactId><configuration>%b</configuration></plugin>"
MAVEN: dict[str, bytes] = {
    "pom.xml": POM % (SUREFIRE % b"<trimStackTrace>false</trimStackTrace>"),
    "src/main/java/Cart.java": b"class Cart {}\n",
    "src/test/java/CartTest.java": b"class CartTest {}\n",
}
ONLY = {name: Guard(frozenset({name})) for name in ("node", "go", "cargo", "maven", "unittest")}


def edited(tree: Tree, path: str, old: bytes, new: bytes) -> dict[str, bytes | Item | None]:
    """One file with other words in it."""
    was = tree[path]
    assert isinstance(was, bytes)
    assert old in was
    return {path: was.replace(old, new)}


def longer(tree: Tree, path: str, more: bytes) -> dict[str, bytes | Item | None]:
    """One file with more at its end."""
    was = tree[path]
    assert isinstance(was, bytes)
    return {path: was + more}


CASES: list[tuple[str, Tree, Guard, dict[str, bytes | Item | None], str]] = [
    ("edited test", PYTHON, PYTEST, {"tests/test_cart.py": b"def test_total():\n    pass\n"}, "test_changed"),
    ("edited data of a test", PYTHON, PYTEST, {"tests/data/prices.json": b"[0]"}, "test_changed"),
    ("deleted test", PYTHON, PYTEST, {"tests/test_cart.py": None}, "test_deleted"),
    (
        "executable test",
        PYTHON,
        PYTEST,
        {"tests/test_cart.py": Item(PYTHON["tests/test_cart.py"], 0o100755)},
        "test_replaced",
    ),
    (
        "link in place of a test",
        PYTHON,
        PYTEST,
        {"tests/test_cart.py": Item(b"../other.py", SYMLINK)},
        "test_replaced",
    ),
    (
        "link in place of tests",
        PYTHON,
        PYTEST,
        {**{p: None for p in PYTHON if p.startswith("tests/")}, "tests": Item(b"other", SYMLINK)},
        "test_replaced",
    ),
    (
        "directory in place of a test",
        PYTHON,
        PYTEST,
        {"tests/test_cart.py": None, "tests/test_cart.py/a": b""},
        "test_replaced",
    ),
    ("further test", PYTHON, PYTEST, {"tests/test_more.py": b"import pytest\n"}, "new_test"),
    ("other spelling of a directory", PYTHON, PYTEST, {"Tests/helper.md": b""}, "case"),
    ("other spelling of a name", PYTHON, PYTEST, {"tests/conftesT.py": b""}, "case"),
    ("full width letters", PYTHON, PYTEST, {"\uff54ests/a": b""}, "case"),
    (
        "conftest at the top",
        PYTHON,
        PYTEST,
        {"conftest.py": b"collect_ignore = ['tests']\n"},
        "runner_config",
    ),
    ("changed conftest", PYTHON, PYTEST, {"tests/conftest.py": b"import sys\n"}, "runner_config"),
    ("pytest.ini", PYTHON, PYTEST, {"pytest.ini": b"[pytest]\n"}, "runner_config"),
    (".pytest.ini", PYTHON, PYTEST, {".pytest.ini": b"[pytest]\n"}, "runner_config"),
    (
        "options in pyproject",
        PYTHON,
        PYTEST,
        edited(PYTHON, "pyproject.toml", b'"-q"', b'"-k nothing"'),
        "runner_config",
    ),
    (
        "plugin in pyproject",
        PYTHON,
        PYTEST,
        longer(PYTHON, "pyproject.toml", b'[project.entry-points.pytest11]\na = "shop"\n'),
        "runner_config",
    ),
    ("pyproject that cannot be read", PYTHON, PYTEST, {"pyproject.toml": b"["}, "runner_config"),
    (
        "options in setup.cfg",
        PYTHON,
        PYTEST,
        {"setup.cfg": b"[metadata]\nname = shop\n[tool:pytest]\naddopts = -q -x\n"},
        "runner_config",
    ),
    (
        "option behind an indented header",
        PYTHON,
        PYTEST,
        longer(PYTHON, "setup.cfg", b" [other]\nnorecursedirs = tests\n"),
        "runner_config",
    ),
    ("new section in tox.ini", PYTHON, PYTEST, {"tox.ini": b"[pytest]\naddopts = -x\n"}, "runner_config"),
    (
        "plugin in setup.py",
        PYTHON,
        PYTEST,
        {"setup.py": b"setup(entry_points={'pytest11': ['a = shop']})"},
        "runner_config",
    ),
    ("variables of the runner", PYTHON, PYTEST, {".env": b"export PYTEST_ADDOPTS=-x\n"}, "runner_config"),
    (
        "recipe of a target that is used",
        PYTHON,
        PYTEST,
        edited(PYTHON, "Makefile", b"ruff check", b"true"),
        "runner_config",
    ),
    (
        "variable of a target that is used",
        PYTHON,
        PYTEST,
        edited(PYTHON, "Makefile", b":= pytest", b":= true"),
        "runner_config",
    ),
    ("makefile that is read first", PYTHON, PYTEST, {"GNUmakefile": b"test:\n\ttrue\n"}, "runner_config"),
    (
        "recipe of just",
        {"justfile": b"test:\n  pytest\n"},
        Guard(commands=("just test",)),
        {"justfile": b"test:\n  true\n"},
        "runner_config",
    ),
    (
        "script of a check",
        {"scripts/test.sh": b"pytest\n"},
        Guard(commands=("sh ./scripts/test.sh",)),
        {"scripts/test.sh": b"true\n"},
        "runner_config",
    ),
    (
        "script of a recipe",
        {
            "Makefile": b"test: lint\n\tpytest\nlint:\n\t@./tools/lint.sh src\n",
            "tools/lint.sh": b"ruff check\n",
        },
        PYTEST,
        {"tools/lint.sh": b"true\n"},
        "runner_config",
    ),
    (
        "script of a script of a recipe",
        {
            "Makefile": b"test:\n\tbash tools/all\n",
            "tools/all": b"set -e\nif ! . tools/env.sh; then exit 1; fi\nexec python3 -u tools/run.py\n",
            "tools/env.sh": b"PATH=$PATH:.\n",
            "tools/run.py": b"import pytest\n",
        },
        PYTEST,
        {"tools/run.py": b"pass\n", "tools/env.sh": b"exit\n"},
        "runner_config",
    ),
    (
        "script that a recipe reaches by links",
        {
            "Makefile": b"test:\n\tbin/lint && sh -ec 'bin/types'\n",
            "bin": Item(b"tools", SYMLINK),
            "tools/lint": Item(b"../scripts/lint.sh", SYMLINK),
            "scripts/lint.sh": b"ruff check\n",
            "tools/types": b"mypy .\n",
        },
        PYTEST,
        {"scripts/lint.sh": b"true\n"},
        "runner_config",
    ),
    (
        "link to a script of a recipe",
        {"Makefile": b"test:\n\tbin/lint\n", "bin": Item(b"tools", SYMLINK), "tools/lint": b"ruff check\n"},
        PYTEST,
        {"bin": Item(b"others", SYMLINK), "others/lint": b"true\n"},
        "runner_config",
    ),
    (
        "file that a makefile includes where it is there",
        {"Makefile": b"-include local/rules\ntest:\n\tpytest\n"},
        PYTEST,
        {"local/rules": b"SHELL = true\n"},
        "runner_config",
    ),
    (
        "section that tox is referred to",
        {"tox.ini": b"[testenv]\ncommands = {[base]commands}\n[base]\ncommands = pytest\n"},
        Guard(commands=("tox -q",)),
        {"tox.ini": b"[testenv]\ncommands = {[base]commands}\n[base]\ncommands = true\n"},
        "runner_config",
    ),
    (
        "tox's section of setup.cfg",
        {"setup.cfg": b"[tox:tox]\nenvlist = py\n"},
        Guard(commands=("tox -q",)),
        {"setup.cfg": b"[tox:tox]\nenvlist =\n"},
        "runner_config",
    ),
    (
        "file that a makefile includes",
        {
            "Makefile": b"-include build/rules\ntest: lint\n\tpytest\n",
            "build/rules": b"lint:\n\truff check\n",
        },
        PYTEST,
        {"build/rules": b"lint:\n\ttrue\n"},
        "runner_config",
    ),
    (
        "script of a script of npm",
        {
            "web/package.json": b'{"scripts": {"lint": "CI=1 node tools/lint.js lib"}}',
            "web/tools/lint.js": b"1",
        },
        Guard(frozenset({"node"}), ("npm --prefix web run lint",)),
        {"web/tools/lint.js": b"0"},
        "runner_config",
    ),
    (
        "set-up of jest",
        {
            "package.json": b'{"jest": {"setupFiles": ["<rootDir>/tools/before.js"], "testEnvironment": "./env.js"}}',
            "tools/before.js": b"1",
            "env.js": b"1",
        },
        ONLY["node"],
        {"tools/before.js": b"0"},
        "runner_config",
    ),
    ("sitecustomize", PYTHON, PYTEST, {"src/sitecustomize.py": b""}, "runner_config"),
    ("usercustomize", PYTHON, PYTEST, {"usercustomize.py": b""}, "runner_config"),
    ("path file", PYTHON, PYTEST, {"shop.pth": b"import os\n"}, "runner_config"),
    ("what is checked out", PYTHON, PYTEST, {".gitattributes": b"tests/* filter=lfs\n"}, "runner_config"),
    ("weaker linter", PYTHON, PYTEST, edited(PYTHON, "pyproject.toml", b"= 90", b"= 900"), "runner_config"),
    (
        "new configuration of a type checker",
        PYTHON,
        PYTEST,
        {"mypy.ini": b"[mypy]\nignore_errors = True\n"},
        "check_config",
    ),
    ("new .prettierrc.json", NODE, ONLY["node"], {".prettierrc.json": b""}, "check_config"),
    ("new .prettierignore", NODE, ONLY["node"], {".prettierignore": b""}, "check_config"),
    ("new stylelint.config.mjs", NODE, ONLY["node"], {"stylelint.config.mjs": b""}, "check_config"),
    ("new ty.toml", NODE, ONLY["node"], {"ty.toml": b""}, "check_config"),
    ("new .isort.cfg", NODE, ONLY["node"], {".isort.cfg": b""}, "check_config"),
    ("pytest.py", PYTHON, PYTEST, {"pytest.py": b""}, "shadow"),
    ("package unittest", PYTHON, PYTEST, {"unittest/__init__.py": b""}, "shadow"),
    ("package _pytest below src", PYTHON, PYTEST, {"src/_pytest/python.py": b""}, "shadow"),
    (
        "link to a package unittest",
        PYTHON,
        ONLY["unittest"],
        {"unittest": Item(b"src/shop", SYMLINK)},
        "shadow",
    ),
    ("link in place of a module", PYTHON, PYTEST, {"src/shop/cart": Item(b"../other", SYMLINK)}, "shadow"),
    ("link in place of a package", PYTHON, PYTEST, {"shop": Item(b"other", SYMLINK)}, "shadow"),
    ("module in place of a package", PYTHON, PYTEST, {"shop.py": b""}, "shadow"),
    (
        "library of Java's tests",
        MAVEN,
        ONLY["maven"],
        {"src/main/resources/org/junit/jupiter/api/Assertions.class": b"\xca\xfe"},
        "shadow",
    ),
    (
        "package of Java's tests",
        MAVEN,
        ONLY["maven"],
        {"src/main/java/A.java": b"package org.junit.jupiter.api;\n"},
        "runner_import",
    ),
    (
        "assertion of one's own beside tests",
        CARGO,
        ONLY["cargo"],
        {"src/lib.rs": b"macro_rules! assert_eq { ($($t:tt)*) => {} }\n" + LIB},
        "runner_import",
    ),
    (
        "question beside tests",
        CARGO,
        ONLY["cargo"],
        {"src/lib.rs": b"pub fn is_test() -> bool { cfg!(test) }\n" + LIB},
        "asks_for_tests",
    ),
    (
        "another file for tests",
        CARGO,
        ONLY["cargo"],
        {"src/a.rs": b'#[cfg_attr(test, path = "b.rs")]\nmod c;\n'},
        "asks_for_tests",
    ),
    ("what is done before tests", NODE, ONLY["node"], {"src/setupTests.ts": b""}, "runner_config"),
    ("module of the standard library", PYTHON, ONLY["unittest"], {"src/traceback.py": b""}, "shadow"),
    ("what tells of results", PYTHON, ONLY["unittest"], {"socket.py": b""}, "shadow"),
    ("package in its place", PYTHON, ONLY["unittest"], {"src/datetime/__init__.py": b""}, "shadow"),
    ("compiled part of it", PYTHON, PYTEST, {"_socket.py": b""}, "shadow"),
    ("plugin that is installed", PYTHON, PYTEST, {"pytest_timeout.py": b""}, "shadow"),
    ("compiled module", PYTHON, PYTEST, {"json.cpython-312-x86_64-linux-gnu.so": b"\x7fELF"}, "shadow"),
    ("installed packages", PYTHON, PYTEST, {"lib/site-packages/pluggy/__init__.py": b""}, "shadow"),
    ("package in place of a module", PYTHON, PYTEST, {"src/shop/cart/__init__.py": b""}, "shadow"),
    ("package before that below src", PYTHON, PYTEST, {"shop/__init__.py": b""}, "shadow"),
    ("node_modules", NODE, ONLY["node"], {"node_modules/jest/index.js": b""}, "shadow"),
    (
        "script test",
        NODE,
        ONLY["node"],
        edited(NODE, "package.json", b"node --test", b"true"),
        "runner_config",
    ),
    ("options of jest", NODE, ONLY["node"], edited(NODE, "package.json", b"true", b"false"), "runner_config"),
    (
        "jest of one's own",
        NODE,
        ONLY["node"],
        edited(NODE, "package.json", b'"jest"', b'"devDependencies": {"jest": "file:./fake"}, "jest"'),
        "runner_config",
    ),
    ("NODE_OPTIONS", NODE, ONLY["node"], {".npmrc": b"node-options=--require ./patch.js\n"}, "runner_config"),
    (
        "vitest's configuration",
        NODE,
        ONLY["node"],
        {"vitest.config.ts": b"export default {}"},
        "runner_config",
    ),
    (
        "vite's, with tests",
        NODE,
        ONLY["node"],
        {"vite.config.ts": b"export default {test: {exclude: ['**']}}"},
        "runner_config",
    ),
    ("mocha's configuration", NODE, ONLY["node"], {".mocharc.yml": b"grep: nothing"}, "runner_config"),
    ("test beside the code", NODE, ONLY["node"], {"lib/cart.spec.ts": b""}, "new_test"),
    (
        "TestMain",
        GO,
        ONLY["go"],
        {"main_test.go": b"package shop\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n"},
        "new_test",
    ),
    (
        "own copy of testify",
        GO,
        ONLY["go"],
        {"go.mod": b"module shop\n\nreplace github.com/stretchr/testify => ./fake\n"},
        "runner_config",
    ),
    (
        "vendored packages",
        GO,
        ONLY["go"],
        {"vendor/github.com/stretchr/testify/a.go": b"package a\n"},
        "shadow",
    ),
    (
        "library without tests",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b"[lib]\ntest = false\n"),
        "runner_config",
    ),
    (
        "harness of one's own",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b'[[test]]\nname = "cart"\nharness = false\n'),
        "runner_config",
    ),
    (
        "cargo's runner",
        CARGO,
        ONLY["cargo"],
        {".cargo/config.toml": b'[target.x]\nrunner = "true"\n'},
        "runner_config",
    ),
    (
        "test inside the code",
        CARGO,
        ONLY["cargo"],
        {"src/lib.rs": LIB.replace(b", 3)", b", 0)")},
        "test_changed",
    ),
    (
        "test inside the code is gone",
        CARGO,
        ONLY["cargo"],
        {"src/lib.rs": LIB.partition(b"#[cfg")[0]},
        "test_changed",
    ),
    (
        "surefire skips",
        MAVEN,
        ONLY["maven"],
        {"pom.xml": POM % (SUREFIRE % b"<excludes>**</excludes>")},
        "runner_config",
    ),
    (
        "property skips",
        MAVEN,
        ONLY["maven"],
        edited(MAVEN, "pom.xml", b"<properties>", b"<properties><maven.test.skip>true</maven.test.skip>"),
        "runner_config",
    ),
    (
        "entities in a pom",
        MAVEN,
        ONLY["maven"],
        {"pom.xml": b"<!DOCTYPE a [<!ENTITY b 'c'>]>" + MAVEN["pom.xml"]},
        "runner_config",
    ),
    (
        "listener of JUnit",
        MAVEN,
        ONLY["maven"],
        {"src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener": b"Cart"},
        "runner_config",
    ),
    (
        "file in place of a target",
        {"Makefile": b".PHONY: lint\nlint: style\nstyle:\n\truff check\n"},
        Guard(commands=("make lint",)),
        {"lint": b""},
        "runner_config",
    ),
    (
        "target that becomes a file",
        {"Makefile": b".PHONY: style\nlint: style\nstyle:\n\truff check\n"},
        Guard(commands=("make lint",)),
        {"Makefile": b"lint: style\nstyle:\n\truff check\n"},
        "runner_config",
    ),
    (
        "plugin by metadata",
        PYTHON,
        PYTEST,
        {"a.dist-info/entry_points.txt": b"[pytest11]\na = a\n"},
        "runner_config",
    ),
    ("compiled module beside its source", PYTHON, PYTEST, {"src/shop/cart.abi3.so": b"\x7fELF"}, "shadow"),
    (
        "own copy of a library for tests",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b'[dev-dependencies]\nassert_cmd = {path = "fake"}\n'),
        "runner_config",
    ),
    (
        "own copy of JUnit",
        MAVEN,
        ONLY["maven"],
        edited(
            MAVEN, "pom.xml", b"<build>", b"<dependency><artifactId>junit</artifactId></dependency><build>"
        ),
        "runner_config",
    ),
    ("path outside", PYTHON, PYTEST, {"src/../../etc/passwd": b""}, "path"),
    ("git's own directory", PYTHON, PYTEST, {"src/.GIT/hooks/a": b""}, "path"),
    (
        "replaced module whose name is spelled otherwise",
        GO,
        ONLY["go"],
        longer(GO, "go.mod", b'replace "github.com/stretchr/testi\\x66y" => ./fake\n'),
        "runner_config",
    ),
    (
        "replaced module that a library would be a part of",
        GO,
        ONLY["go"],
        longer(GO, "go.mod", b"replace github.com/stretchr => ./fake\n"),
        "runner_config",
    ),
    (
        "program of the project's that npx takes for the runner",
        NODE,
        Guard(frozenset({"node"}), ("npx jest",)),
        edited(NODE, "package.json", b'"jest"', b'"bin": {"jest": "ok.js"}, "jest"'),
        "runner_config",
    ),
    (
        "program of the project's that is called as the project is",
        NODE,
        Guard(frozenset({"node"}), ("npx jest",)),
        edited(NODE, "package.json", b'"name": "shop"', b'"name": "@shop/jest", "bin": "ok.js"'),
        "runner_config",
    ),
    (
        "makefile that is read first and holds nothing",
        PYTHON,
        PYTEST,
        {"GNUmakefile": b"# nothing\n"},
        "runner_config",
    ),
    (
        "target that a variable leads to",
        {"Makefile": b"CHECKS = lint\ntest: $(CHECKS)\nlint:\n\truff check\n"},
        PYTEST,
        {"Makefile": b"CHECKS = lint\ntest: $(CHECKS)\nlint:\n\ttrue\n"},
        "runner_config",
    ),
    (
        "function in a comment of a recipe",
        PYTHON,
        PYTEST,
        edited(PYTHON, "Makefile", b"\truff", b"\t# $(eval SHELL=true)\n\truff"),
        "runner_config",
    ),
    (
        "target that a pattern leads to",
        {"Makefile": b"test:\n\tpytest\n%.done: lint\n\ttouch $@\nlint:\n\truff check\n"},
        PYTEST,
        {"Makefile": b"test:\n\tpytest\n%.done: lint\n\ttouch $@\nlint:\n\ttrue\n"},
        "runner_config",
    ),
    (
        "line of a variable of many lines that looks like a target",
        {"Makefile": b"test:\n\t$(run)\ndefine run\nall: pytest\nendef\n"},
        PYTEST,
        {"Makefile": b"test:\n\t$(run)\ndefine run\nall: true\nendef\n"},
        "runner_config",
    ),
]
CASES += [
    (
        f"file that {config} has loaded before the tests",
        {config: text, "config/init.js": b"1"},
        ONLY["node"],
        {"config/init.js": b"0"},
        "runner_config",
    )
    for config, text in (
        ("jest.config.js", b"module.exports = {setupFilesAfterEnv: ['a', '<rootDir>/config/init']}"),
        ("jest.config.json", b'{"transform": {"a": "./config/init.js"}}'),
        ("vitest.config.ts", b"export default {test: {globalSetup:\n  './config/init.js'}}"),
        ("vite.config.ts", b"const setupFiles = ['config/init.js']; test"),
        (".mocharc.yml", b"require:\n  - a\n  - ./config/init.js\n"),
    )
]
CASES += [
    (
        f"own copy of an assertion crate in {table}",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", f'[{table}]\npretty_assertions = {{ path = "fake" }}\n'.encode()),
        "runner_config",
    )
    for table in (
        "dependencies",
        "dev_dependencies",
        "workspace.dependencies",
        "target.'cfg(all())'.dev-dependencies",
        "target.'cfg(all())'.dependencies",
    )
]
CASES += [
    (
        f"tasks of {tool}",
        {path: b"1\n"},
        Guard(commands=(f"{tool} test",)),
        {path: b"2\n"},
        "runner_config",
    )
    for tool, path in (
        ("tox", "tox.toml"),
        ("inv", "tasks.py"),
        ("doit", "dodo.py"),
        ("hatch", "hatch.toml"),
        ("uv", "uv.toml"),
        ("poe", "poe_tasks.toml"),
        ("mise", ".mise.toml"),
        ("turbo", "turbo.json"),
        ("nx", "nx.json"),
        ("rake", "Rakefile"),
    )
]
CASES += [
    (
        f"makefile that is read otherwise: {what}",
        PYTHON,
        PYTEST,
        longer(PYTHON, "Makefile", text),
        "runner_config",
    )
    for what, text in (
        ("function in what a target needs", b"other: $(eval include evil)\n"),
        ("function in what a target needs, behind a variable", b"other: $(A)$(eval include evil)\n"),
        ("function among targets that are no files", b".PHONY: $(eval include evil)\n"),
        ("variable that is indented", b"other:\n  SHELL = true\n"),
        ("file that is included, indented", b"other:\n \tinclude evil\n"),
        ("line that does not go on", b"other: a\\\\\ninclude evil\n"),
        ("comment that does not go on", b"# a\\\\\ninclude evil\n"),
        ("line that goes on behind a carriage return", b"other: \\\r\n\t$(eval include evil)\n"),
        ("space that ends no line", b"other:\x0b\t$(eval include evil)\n"),
        ("included file with a colon", b"-include evil other: a\n"),
        ("exported variable with a colon", b"export other: a\n\tinclude evil\n"),
    )
]
CASES += [
    (
        f"justfile that is read otherwise: {what}",
        {"justfile": b"test:\n  pytest\n"},
        Guard(commands=("just test",)),
        {"justfile": text},
        "runner_config",
    )
    for what, text in (
        ("comment that does not go on", b'test:\n  pytest\n# a \\\nset shell := ["true"]\n'),
        ("interpreter of a recipe", b"test:\n  #!/bin/true\n  pytest\n"),
    )
]


@pytest.mark.parametrize(
    ("before", "guard", "after", "rule"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_tampering_is_found_and_names_the_file(before, guard, after, rule):
    """Whatever changes what the checks say is rejected, with the file and the rule."""
    found = [each for each in attempt(before, after, guard) if each.rule == rule]
    assert {each.path for each in found} & set(after)
    assert all(repr(each.path) in str(each) and len(each.why) > 10 for each in found)


HONEST: list[tuple[str, Tree, Guard, dict[str, bytes | Item | None]]] = [
    (
        "further target that is no file",
        {"Makefile": b".PHONY: lint\nlint:\n\truff check\n"},
        Guard(commands=("make lint",)),
        {"Makefile": b".PHONY: lint run\nlint:\n\truff check\nrun:\n\tpython -m shop\n"},
    ),
    (
        "code",
        PYTHON,
        PYTEST,
        {"src/shop/cart.py": b"import json\n\ndef total(prices):\n    return sum(prices)\n"},
    ),
    (
        "what the story's check runs and the story builds",
        {"kitty.py": b""},
        Guard(frozenset({"unittest"}), ("python3 kitty.py settle",), to_build=frozenset({"kitty.py"})),
        {"kitty.py": b"print(1)\n"},
    ),
    (
        "module of a package of one's own",
        PYTHON,
        PYTEST,
        {"src/shop/socket.py": b"", "src/shop/code/a.py": b""},
    ),
    ("directory that is no package", PYTHON, PYTEST, {"code/a.py": b"", "app/calendar.py": b""}),
    ("new module", PYTHON, PYTEST, {"src/shop/json.py": b"", "src/shop/sub/__init__.py": b""}),
    (
        "dependency in pyproject",
        PYTHON,
        PYTEST,
        edited(PYTHON, "pyproject.toml", b'"shop"', b'"shop"\ndependencies = ["attrs"]'),
    ),
    (
        "other section of setup.cfg",
        PYTHON,
        PYTEST,
        edited(PYTHON, "setup.cfg", b"name = shop", b"name = shop2"),
    ),
    (
        "other target",
        PYTHON,
        PYTEST,
        {"Makefile": PYTHON["Makefile"].replace(b"-m shop", b"-m shop --debug") + b"deploy: run\n\techo\n"},
    ),
    ("makefile that no check uses", PYTHON, Guard(frozenset({"pytest"}), ("pytest -q",)), {"Makefile": b""}),
    (
        "link to a script",
        PYTHON,
        PYTEST,
        {"code": Item(b"src/shop/cart.py", SYMLINK), "a": Item(b"b", SYMLINK)},
    ),
    (
        "module becomes a package",
        PYTHON,
        PYTEST,
        {"src/shop/cart.py": None, "src/shop/cart/__init__.py": b""},
    ),
    (
        "product that a recipe names",
        {
            "Makefile": b"test:\n\truff check shop.py && python3 -m shop --check && mypy ./shop.py\n"
            b"run:\n\t./serve.sh\n",
            "shop.py": b"1\n",
            "shop/__main__.py": b"1\n",
            "serve.sh": b"python3 shop.py\n",
        },
        PYTEST,
        {"shop.py": b"2\n", "shop/__main__.py": b"2\n", "serve.sh": b"python3 -u shop.py\n"},
    ),
    (
        "product that jest maps and counts",
        {
            "package.json": b'{"jest": {"collectCoverageFrom": ["lib/a.js"],'
            b' "moduleNameMapper": {"a": "<rootDir>/lib/a.js"}}}',
            "lib/a.js": b"1",
        },
        ONLY["node"],
        {"lib/a.js": b"2"},
    ),
    (
        "tasks of the product's own",
        {"src/shop/tasks.py": b"1"},
        Guard(frozenset({"pytest"}), ("inv test",)),
        {"src/shop/tasks.py": b"2"},
    ),
    (
        "product that a configuration of jest names",
        {"jest.config.js": b"module.exports = {moduleNameMapper: {a: 'lib/a.js'}}", "lib/a.js": b"1"},
        ONLY["node"],
        {"lib/a.js": b"2"},
    ),
    (
        "script of a recipe that a story is to build",
        {"Makefile": b"test:\n\t./tools/lint.sh\n", "tools/lint.sh": b"false\n"},
        Guard(frozenset({"pytest"}), ("make test",), to_build=frozenset({"tools/lint.sh"})),
        {"tools/lint.sh": b"ruff check\n"},
    ),
    ("variable of the product", PYTHON, PYTEST, {".env": b"SHOP_PORT=80\n"}),
    ("other script", NODE, ONLY["node"], edited(NODE, "package.json", b"node .", b"node lib/cart.js")),
    (
        "dependency in package.json",
        NODE,
        ONLY["node"],
        edited(NODE, "package.json", b'"jest"', b'"dependencies": {"left-pad": "1"}, "jest"'),
    ),
    ("vite's, without tests", NODE, ONLY["node"], {"vite.config.ts": b"export default {build: {}}"}),
    (
        "module that Go needs",
        GO,
        ONLY["go"],
        {"go.mod": b"module shop\n\ngo 1.22\n\nrequire example.com/a v1.0.0\n"},
    ),
    ("code beside inline tests", CARGO, ONLY["cargo"], {"src/lib.rs": LIB.replace(b"{ 0 }", b"{ 3 }")}),
    (
        "crate of the project's in Cargo.toml",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b'[dependencies]\nshop-core = { path = "core" }\n'),
    ),
    (
        "dependency in Cargo.toml",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b'[dependencies]\nserde = "1"\n'),
    ),
    (
        "dependency in a pom",
        MAVEN,
        ONLY["maven"],
        edited(
            MAVEN,
            "pom.xml",
            b"<build>",
            b"<dependencies><dependency><artifactId>a</artifactId></dependency></dependencies><build>",
        ),
    ),
    (
        "target and variable that no check leads to",
        {"Makefile": b"OBJECTS = a.o\ntest:\n\tpytest\nrun: $(OBJECTS)\n\t./run\n"},
        PYTEST,
        {
            "Makefile": b"OBJECTS = a.o\ntest:\n\tpytest\nrun: b ${OBJECTS} c\n\t# a \\\n\n\t./run $(shell date)\n"
        },
    ),
    (
        "program of the project's",
        NODE,
        ONLY["node"],
        edited(NODE, "package.json", b'"jest"', b'"bin": {"shop": "lib/cart.js"}, "jest"'),
    ),
]


@pytest.mark.parametrize(
    ("before", "guard", "after"), [case[1:] for case in HONEST], ids=[c[0] for c in HONEST]
)
def test_honest_work_is_left_alone(before, guard, after):
    """Code, dependencies and settings that no check depends on may change."""
    assert attempt(before, after, guard) == []


def test_a_renamed_test_is_told_with_its_new_name():
    """Who looks for a test that is gone learns where it went."""
    (deleted, *_) = attempt(
        PYTHON, {"tests/test_cart.py": None, "old.txt": PYTHON["tests/test_cart.py"]}, PYTEST
    )
    assert str(deleted) == "'tests/test_cart.py' is renamed to 'old.txt' (test_deleted)"


def test_a_rule_can_be_allowed_by_name():
    """What is allowed does not reject; the other rules still do."""
    after = {"tests/test_more.py": b"", "conftest.py": b""}
    allowing = Guard(PYTEST.runners, PYTEST.commands, frozenset({"new_test"}))
    assert rules(attempt(PYTHON, after, PYTEST)) == {"new_test", "runner_config"}
    assert rules(attempt(PYTHON, after, allowing)) == {"runner_config"}


def test_without_known_runners_all_conventions_count():
    """Where nothing is known of the runner, whatever might be a test is guarded."""
    after = {"conftest.py": b"", "a_test.go": b"", "jest.config.js": b"", "src/test/java/A.java": b""}
    assert {each.path for each in attempt({}, after)} == set(after)


def test_tests_with_names_of_their_own_can_be_named():
    """What the project calls its tests against all conventions is frozen, and may be written, if it is named."""
    guard = Guard(frozenset({"pytest"}), tests=("checks/*.py",))
    found = attempt({"checks/deep/cart.py": b""}, {"checks/deep/cart.py": b"pass"}, guard)
    assert rules(found) == {"test_changed"}
    assert guard.is_test("checks/cart.py")
    assert not guard.is_test("src/checks/cart.py")


def test_a_restored_tree_is_checked_by_itself():
    """Whatever is said to have changed, a tree whose frozen files differ is found before a gate runs in it."""
    frozen = freeze(items(PYTHON), PYTEST)
    assert broken(frozen, items(PYTHON).get, PYTEST) == []
    (found,) = broken(frozen, items({**PYTHON, "tests/test_cart.py": b""}).get, PYTEST)
    assert found.path == "tests/test_cart.py"


def test_only_whole_files_are_to_be_restored():
    """A gate puts back tests and their data, and leaves files of which only a part is frozen."""
    tests = set(freeze(items(PYTHON), PYTEST).tests)
    assert tests == {"tests/test_cart.py", "tests/data/prices.json", "tests/conftest.py"}


HOSTILE = [
    "pyproject.toml",
    "setup.cfg",
    "package.json",
    "Cargo.toml",
    "pom.xml",
    "Makefile",
    ".env",
    "a.rs",
    "a.py",
    "a.go",
]


@given(st.sampled_from(HOSTILE), st.binary(max_size=300), st.binary(max_size=300))
def test_hostile_contents_are_only_data(name, was, now):
    """Whatever bytes a file has, it is judged without failing, and the same bytes are no change."""
    guard = Guard(commands=("make test",))
    assert attempt({name: was}, {name: was}, guard) == []
    assert rules(attempt({name: was}, {name: now}, guard)) <= set(get_args(Rule))


@given(st.text(min_size=1, max_size=40), st.binary(max_size=10).map(os.fsdecode))
def test_hostile_paths_are_only_data(path, more):
    """Whatever a path is, it is judged without failing and told in one line."""
    for found in attempt(PYTHON, {path: b"", f"tests/{more}": b""}, PYTEST):
        assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("name", "data"),
    slow_after(
        3,
        [
            ("pyproject.toml", b"a = " + b"[" * 100_000),
            ("package.json", b"[" * 100_000),
            ("pom.xml", b"<a>" * 100_000),
            ("a.rs", b"/*" * 200_000),
            ("a.rs", b"#[test]" * 50_000),
            ("a.py", b"(" * 100_000),
            ("a.py", b"a" + b".a" * 100_000),
            ("a.py", b"-" * 100_000 + b"1"),
            ("a.go", b"\n" * 500_000),
            ("a.go", b"import" + b" " * 200_000),
            ("a.js", b"import" + b" " * 200_000),
            ("tox.ini", b"{[" * 100_000),
            ("jest.config.js", b"file: [" * 50_000),
            ("jest.config.js", b"file" + b" " * 200_000),
            (".mocharc.yml", b"file:\n" + b"- a\n" * 50_000),
            ("Makefile", b"".join(b"a%d: a%d\n" % (n, n + 1) for n in range(20_000))),
            ("Makefile", b"a0 " * 50_000 + b": " + b"a1 " * 50_000),
            ("Makefile", b"".join(b"a%d " % n for n in range(20_000)) + b": " + b"b " * 50_000),
        ],
    ),
    ids=lambda value: value if isinstance(value, str) else value[:8].decode(),
)
def test_files_made_to_take_long_do_not(name, data):
    """Deep nesting and openings without an end are judged like any other file, within the test's time."""
    assert rules(attempt({}, {name: data}, Guard(commands=("make a0", "tox")))) <= set(get_args(Rule))


@pytest.mark.parametrize("runner", slow_after(1, ["pytest", "unittest"]))
def test_whatever_a_runner_imports_is_known(runner, tmp_path):
    """A new file at the top of a project takes the place of none of the modules that are loaded when tests run."""
    listing = (
        "import atexit, pathlib, sys\n"
        "def tell():\n"
        "    loaded = [name for name, module in list(sys.modules.items()) if getattr(module, '__file__', None)]\n"
        "    tops = {name.split('.')[0] for name in loaded}\n"
        "    pathlib.Path('loaded').write_text(' '.join(tops & set(sys.stdlib_module_names)))\n"
        "atexit.register(tell)\n"
    )
    (tmp_path / "test_one.py").write_text(f"{listing}def test_one(): assert 1\n")
    asked = [sys.executable, "-m", runner, "-q", "test_one.py"]
    subprocess.run(asked, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    loaded = (tmp_path / "loaded").read_text().split()
    unseen = [name for name in loaded if "shadow" not in rules(attempt({}, {f"{name}.py": b""}, PYTEST))]
    assert (unseen, "socket" in loaded or len(loaded) > 20) == ([], True)
