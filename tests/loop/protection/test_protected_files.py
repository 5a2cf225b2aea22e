"""Which changes of an attempt are left out of the tree that is judged, each kind by an example, beside those taken."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import slow_after
from tests.loop.protection.trees import Tree, entries, left_out, protection

from ringfence.check.protected_files import Conventions, decisive_changes
from ringfence.check.red_reason import may_hold_tests
from ringfence.check.source_code import changed_inline_tests, imported_modules, reaches_tests
from ringfence.check.tree import SYMLINK, TreeEntry
from ringfence.loop.assembly import Assembled, assemble, only_tests
from ringfence.loop.repository import Change
from ringfence.loop.repository import Tree as GitTree

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
PYTEST = Conventions(frozenset({"pytest"}), ("make test",))
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
ONLY = {name: Conventions(frozenset({name})) for name in ("node", "go", "cargo", "maven", "unittest")}


def edited(tree: Tree, path: str, old: bytes, new: bytes) -> dict[str, bytes | TreeEntry | None]:
    """One file with other words in it."""
    was = tree[path]
    assert isinstance(was, bytes)
    assert old in was
    return {path: was.replace(old, new)}


def longer(tree: Tree, path: str, more: bytes) -> dict[str, bytes | TreeEntry | None]:
    """One file with more at its end."""
    was = tree[path]
    assert isinstance(was, bytes)
    return {path: was + more}


_LINT = {"Makefile": b"lint: style\nstyle:\n\truff check\n"}
CASES: list[tuple[str, Tree, Conventions, dict[str, bytes | TreeEntry | None]]] = [
    ("edited test", PYTHON, PYTEST, {"tests/test_cart.py": b"def test_total():\n    pass\n"}),
    ("edited data of a test", PYTHON, PYTEST, {"tests/data/prices.json": b"[0]"}),
    ("deleted test", PYTHON, PYTEST, {"tests/test_cart.py": None}),
    (
        "executable test",
        PYTHON,
        PYTEST,
        {"tests/test_cart.py": TreeEntry(PYTHON["tests/test_cart.py"], 0o100755)},
    ),
    ("link in place of a test", PYTHON, PYTEST, {"tests/test_cart.py": TreeEntry(b"../other.py", SYMLINK)}),
    (
        "link in place of tests",
        PYTHON,
        PYTEST,
        {**{p: None for p in PYTHON if p.startswith("tests/")}, "tests": TreeEntry(b"other", SYMLINK)},
    ),
    (
        "directory in place of a test",
        PYTHON,
        PYTEST,
        {"tests/test_cart.py": None, "tests/test_cart.py/a": b""},
    ),
    ("further test", PYTHON, PYTEST, {"tests/test_more.py": b"import pytest\n"}),
    ("other spelling of a directory", PYTHON, PYTEST, {"Tests/helper.md": b""}),
    ("other spelling of a name", PYTHON, PYTEST, {"tests/conftesT.py": b""}),
    ("full width letters", PYTHON, PYTEST, {"\uff54ests/a": b""}),
    ("conftest at the top", PYTHON, PYTEST, {"conftest.py": b"collect_ignore = ['tests']\n"}),
    ("changed conftest", PYTHON, PYTEST, {"tests/conftest.py": b"import sys\n"}),
    ("pytest.ini", PYTHON, PYTEST, {"pytest.ini": b"[pytest]\n"}),
    (".pytest.ini", PYTHON, PYTEST, {".pytest.ini": b"[pytest]\n"}),
    ("options in pyproject", PYTHON, PYTEST, edited(PYTHON, "pyproject.toml", b'"-q"', b'"-k nothing"')),
    (
        "plugin in pyproject",
        PYTHON,
        PYTEST,
        longer(PYTHON, "pyproject.toml", b'[project.entry-points.pytest11]\na = "shop"\n'),
    ),
    ("pyproject that cannot be read", PYTHON, PYTEST, {"pyproject.toml": b"["}),
    (
        "options in setup.cfg",
        PYTHON,
        PYTEST,
        {"setup.cfg": b"[metadata]\nname = shop\n[tool:pytest]\naddopts = -q -x\n"},
    ),
    (
        "option behind an indented header",
        PYTHON,
        PYTEST,
        longer(PYTHON, "setup.cfg", b" [other]\nnorecursedirs = tests\n"),
    ),
    ("new section in tox.ini", PYTHON, PYTEST, {"tox.ini": b"[pytest]\naddopts = -x\n"}),
    ("plugin in setup.py", PYTHON, PYTEST, {"setup.py": b"setup(entry_points={'pytest11': ['a = shop']})"}),
    ("variables of the runner", PYTHON, PYTEST, {".env": b"export PYTEST_ADDOPTS=-x\n"}),
    ("recipe of a target that is used", PYTHON, PYTEST, edited(PYTHON, "Makefile", b"ruff check", b"true")),
    (
        "variable of a target that is used",
        PYTHON,
        PYTEST,
        edited(PYTHON, "Makefile", b":= pytest", b":= true"),
    ),
    ("makefile that is read first", PYTHON, PYTEST, {"GNUmakefile": b"test:\n\ttrue\n"}),
    (
        "recipe of just",
        {"justfile": b"test:\n  pytest\n"},
        Conventions(commands=("just test",)),
        {"justfile": b"test:\n  true\n"},
    ),
    (
        "script of a check",
        {"scripts/test.sh": b"pytest\n"},
        Conventions(commands=("sh ./scripts/test.sh",)),
        {"scripts/test.sh": b"true\n"},
    ),
    (
        "script of a recipe",
        {
            "Makefile": b"test: lint\n\tpytest\nlint:\n\t@./tools/lint.sh src\n",
            "tools/lint.sh": b"ruff check\n",
        },
        PYTEST,
        {"tools/lint.sh": b"true\n"},
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
    ),
    (
        "script that a recipe reaches by links",
        {
            "Makefile": b"test:\n\tbin/lint && sh -ec 'bin/types'\n",
            "bin": TreeEntry(b"tools", SYMLINK),
            "tools/lint": TreeEntry(b"../scripts/lint.sh", SYMLINK),
            "scripts/lint.sh": b"ruff check\n",
            "tools/types": b"mypy .\n",
        },
        PYTEST,
        {"scripts/lint.sh": b"true\n"},
    ),
    (
        "link to a script of a recipe",
        {
            "Makefile": b"test:\n\tbin/lint\n",
            "bin": TreeEntry(b"tools", SYMLINK),
            "tools/lint": b"ruff check\n",
        },
        PYTEST,
        {"bin": TreeEntry(b"others", SYMLINK), "others/lint": b"true\n"},
    ),
    (
        "file that a makefile includes where it is there",
        {"Makefile": b"-include local/rules\ntest:\n\tpytest\n"},
        PYTEST,
        {"local/rules": b"SHELL = true\n"},
    ),
    (
        "section that tox is referred to",
        {"tox.ini": b"[testenv]\ncommands = {[base]commands}\n[base]\ncommands = pytest\n"},
        Conventions(commands=("tox -q",)),
        {"tox.ini": b"[testenv]\ncommands = {[base]commands}\n[base]\ncommands = true\n"},
    ),
    (
        "tox's section of setup.cfg",
        {"setup.cfg": b"[tox:tox]\nenvlist = py\n"},
        Conventions(commands=("tox -q",)),
        {"setup.cfg": b"[tox:tox]\nenvlist =\n"},
    ),
    (
        "file that a makefile includes",
        {
            "Makefile": b"-include build/rules\ntest: lint\n\tpytest\n",
            "build/rules": b"lint:\n\truff check\n",
        },
        PYTEST,
        {"build/rules": b"lint:\n\ttrue\n"},
    ),
    (
        "script of a script of npm",
        {
            "web/package.json": b'{"scripts": {"lint": "CI=1 node tools/lint.js lib"}}',
            "web/tools/lint.js": b"1",
        },
        Conventions(frozenset({"node"}), ("npm --prefix web run lint",)),
        {"web/tools/lint.js": b"0"},
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
    ),
    ("sitecustomize", PYTHON, PYTEST, {"src/sitecustomize.py": b""}),
    ("usercustomize", PYTHON, PYTEST, {"usercustomize.py": b""}),
    ("path file", PYTHON, PYTEST, {"shop.pth": b"import os\n"}),
    ("what is checked out", PYTHON, PYTEST, {".gitattributes": b"tests/* filter=lfs\n"}),
    ("weaker linter", PYTHON, PYTEST, edited(PYTHON, "pyproject.toml", b"= 90", b"= 900")),
    ("new configuration of a type checker", PYTHON, PYTEST, {"mypy.ini": b"[mypy]\nignore_errors = True\n"}),
    ("new .prettierrc.json", NODE, ONLY["node"], {".prettierrc.json": b""}),
    ("new .prettierignore", NODE, ONLY["node"], {".prettierignore": b""}),
    ("new stylelint.config.mjs", NODE, ONLY["node"], {"stylelint.config.mjs": b""}),
    ("new ty.toml", NODE, ONLY["node"], {"ty.toml": b""}),
    ("new .isort.cfg", NODE, ONLY["node"], {".isort.cfg": b""}),
    ("pytest.py", PYTHON, PYTEST, {"pytest.py": b""}),
    ("package unittest", PYTHON, PYTEST, {"unittest/__init__.py": b""}),
    ("link to a package unittest", PYTHON, ONLY["unittest"], {"unittest": TreeEntry(b"src/shop", SYMLINK)}),
    ("link in place of a module", PYTHON, PYTEST, {"src/shop/cart": TreeEntry(b"../other", SYMLINK)}),
    ("link in place of a package", PYTHON, PYTEST, {"shop": TreeEntry(b"other", SYMLINK)}),
    ("module in place of a package", PYTHON, PYTEST, {"shop.py": b""}),
    (
        "library of Java's tests",
        MAVEN,
        ONLY["maven"],
        {"src/main/resources/org/junit/jupiter/api/Assertions.class": b"\xca\xfe"},
    ),
    ("what is done before tests", NODE, ONLY["node"], {"src/setupTests.ts": b""}),
    ("module of the standard library", PYTHON, ONLY["unittest"], {"src/traceback.py": b""}),
    ("what tells of results", PYTHON, ONLY["unittest"], {"socket.py": b""}),
    ("package in its place", PYTHON, ONLY["unittest"], {"src/datetime/__init__.py": b""}),
    ("compiled part of it", PYTHON, PYTEST, {"_socket.py": b""}),
    ("plugin that is installed", PYTHON, PYTEST, {"pytest_timeout.py": b""}),
    ("compiled module", PYTHON, PYTEST, {"json.cpython-312-x86_64-linux-gnu.so": b"\x7fELF"}),
    ("installed packages", PYTHON, PYTEST, {"lib/site-packages/pluggy/__init__.py": b""}),
    ("package in place of a module", PYTHON, PYTEST, {"src/shop/cart/__init__.py": b""}),
    ("package before that below src", PYTHON, PYTEST, {"shop/__init__.py": b""}),
    ("node_modules", NODE, ONLY["node"], {"node_modules/jest/index.js": b""}),
    ("script test", NODE, ONLY["node"], edited(NODE, "package.json", b"node --test", b"true")),
    ("options of jest", NODE, ONLY["node"], edited(NODE, "package.json", b"true", b"false")),
    (
        "jest of one's own",
        NODE,
        ONLY["node"],
        edited(NODE, "package.json", b'"jest"', b'"devDependencies": {"jest": "file:./fake"}, "jest"'),
    ),
    ("NODE_OPTIONS", NODE, ONLY["node"], {".npmrc": b"node-options=--require ./patch.js\n"}),
    ("vitest's configuration", NODE, ONLY["node"], {"vitest.config.ts": b"export default {}"}),
    (
        "vite's, with tests",
        NODE,
        ONLY["node"],
        {"vite.config.ts": b"export default {test: {exclude: ['**']}}"},
    ),
    ("mocha's configuration", NODE, ONLY["node"], {".mocharc.yml": b"grep: nothing"}),
    ("test beside the code", NODE, ONLY["node"], {"lib/cart.spec.ts": b""}),
    (
        "TestMain",
        GO,
        ONLY["go"],
        {"main_test.go": b"package shop\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n"},
    ),
    (
        "own copy of testify",
        GO,
        ONLY["go"],
        {"go.mod": b"module shop\n\nreplace github.com/stretchr/testify => ./fake\n"},
    ),
    ("vendored packages", GO, ONLY["go"], {"vendor/github.com/stretchr/testify/a.go": b"package a\n"}),
    ("library without tests", CARGO, ONLY["cargo"], longer(CARGO, "Cargo.toml", b"[lib]\ntest = false\n")),
    (
        "harness of one's own",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b'[[test]]\nname = "cart"\nharness = false\n'),
    ),
    ("cargo's runner", CARGO, ONLY["cargo"], {".cargo/config.toml": b'[target.x]\nrunner = "true"\n'}),
    ("surefire skips", MAVEN, ONLY["maven"], {"pom.xml": POM % (SUREFIRE % b"<excludes>**</excludes>")}),
    (
        "property skips",
        MAVEN,
        ONLY["maven"],
        edited(MAVEN, "pom.xml", b"<properties>", b"<properties><maven.test.skip>true</maven.test.skip>"),
    ),
    (
        "entities in a pom",
        MAVEN,
        ONLY["maven"],
        {"pom.xml": b"<!DOCTYPE a [<!ENTITY b 'c'>]>" + MAVEN["pom.xml"]},
    ),
    (
        "listener of JUnit",
        MAVEN,
        ONLY["maven"],
        {"src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener": b"Cart"},
    ),
    (
        "file in place of a target",
        {"Makefile": b".PHONY: lint\nlint: style\nstyle:\n\truff check\n"},
        Conventions(commands=("make lint",)),
        {"lint": b""},
    ),
    (
        "target that becomes a file",
        {"Makefile": b".PHONY: style\nlint: style\nstyle:\n\truff check\n"},
        Conventions(commands=("make lint",)),
        {"Makefile": b"lint: style\nstyle:\n\truff check\n"},
    ),
    ("plugin by metadata", PYTHON, PYTEST, {"a.dist-info/entry_points.txt": b"[pytest11]\na = a\n"}),
    ("compiled module beside its source", PYTHON, PYTEST, {"src/shop/cart.abi3.so": b"\x7fELF"}),
    (
        "own copy of a library for tests",
        CARGO,
        ONLY["cargo"],
        longer(CARGO, "Cargo.toml", b'[dev-dependencies]\nassert_cmd = {path = "fake"}\n'),
    ),
    (
        "own copy of JUnit",
        MAVEN,
        ONLY["maven"],
        edited(
            MAVEN, "pom.xml", b"<build>", b"<dependency><artifactId>junit</artifactId></dependency><build>"
        ),
    ),
    ("path outside", PYTHON, PYTEST, {"src/../../etc/passwd": b""}),
    ("git's own directory", PYTHON, PYTEST, {"src/.GIT/hooks/a": b""}),
    (
        "replaced module whose name is spelled otherwise",
        GO,
        ONLY["go"],
        longer(GO, "go.mod", b'replace "github.com/stretchr/testi\\x66y" => ./fake\n'),
    ),
    (
        "replaced module that a library would be a part of",
        GO,
        ONLY["go"],
        longer(GO, "go.mod", b"replace github.com/stretchr => ./fake\n"),
    ),
    (
        "program of the project's that npx takes for the runner",
        NODE,
        Conventions(frozenset({"node"}), ("npx jest",)),
        edited(NODE, "package.json", b'"jest"', b'"bin": {"jest": "ok.js"}, "jest"'),
    ),
    (
        "program of the project's that is called as the project is",
        NODE,
        Conventions(frozenset({"node"}), ("npx jest",)),
        edited(NODE, "package.json", b'"name": "shop"', b'"name": "@shop/jest", "bin": "ok.js"'),
    ),
    ("makefile that is read first and holds nothing", PYTHON, PYTEST, {"GNUmakefile": b"# nothing\n"}),
    (
        "target that a variable leads to",
        {"Makefile": b"CHECKS = lint\ntest: $(CHECKS)\nlint:\n\truff check\n"},
        PYTEST,
        {"Makefile": b"CHECKS = lint\ntest: $(CHECKS)\nlint:\n\ttrue\n"},
    ),
    (
        "function in a comment of a recipe",
        PYTHON,
        PYTEST,
        edited(PYTHON, "Makefile", b"\truff", b"\t# $(eval SHELL=true)\n\truff"),
    ),
    (
        "target that a pattern leads to",
        {"Makefile": b"test:\n\tpytest\n%.done: lint\n\ttouch $@\nlint:\n\truff check\n"},
        PYTEST,
        {"Makefile": b"test:\n\tpytest\n%.done: lint\n\ttouch $@\nlint:\n\ttrue\n"},
    ),
    (
        "line of a variable of many lines that looks like a target",
        {"Makefile": b"test:\n\t$(run)\ndefine run\nall: pytest\nendef\n"},
        PYTEST,
        {"Makefile": b"test:\n\t$(run)\ndefine run\nall: true\nendef\n"},
    ),
]
CASES += [
    (
        f"file that {config} has loaded before the tests",
        {config: text, "config/init.js": b"1"},
        ONLY["node"],
        {"config/init.js": b"0"},
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
    (f"tasks of {tool}", {path: b"1\n"}, Conventions(commands=(f"{tool} test",)), {path: b"2\n"})
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
    (f"makefile that is read otherwise: {what}", PYTHON, PYTEST, longer(PYTHON, "Makefile", text))
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
        Conventions(commands=("just test",)),
        {"justfile": text},
    )
    for what, text in (
        ("comment that does not go on", b'test:\n  pytest\n# a \\\nset shell := ["true"]\n'),
        ("interpreter of a recipe", b"test:\n  #!/bin/true\n  pytest\n"),
    )
]
CASES += [
    (f"file that an option names: {command}", {path: text}, Conventions(commands=(command,)), {path: b"2\n"})
    for command, path, text in (
        ("make -f ci.make", "ci.make", b"test:\n\tpytest\n"),
        ("make -fci.make lint", "ci.make", b"lint:\n\truff check\n"),
        ("make -C build --file=ci.make", "build/ci.make", b"test:\n\tpytest\n"),
        ("cd web && pytest -c ci.ini", "web/ci.ini", b"[pytest]\n"),
        ("pytest -c 'ci.ini'", "ci.ini", b"[pytest]\n"),
        ("pytest -p calc_ci", "calc_ci.py", b"1\n"),
        ("python3 -m pytest -pcalc.ci", "src/calc/ci.py", b"1\n"),
        ("pytest -p calc_ci", "calc_ci/hooks.py", b"1\n"),
        ("pytest @args", "args", b"-q\n"),
        ("go test -modfile=ci.mod ./...", "ci.mod", b"module shop\n"),
        ("go test -overlay=overlay.json ./...", "overlay.json", b"{}"),
        ("go test -exec='./wrap -x' ./...", "wrap", b"exec $@\n"),
        ("node --test --test-reporter=./reports/dots.mjs", "reports/dots.mjs", b"1\n"),
        ("node --test --import ./before.mjs", "before.mjs", b"1\n"),
        ("mypy --config-file types.cfg .", "types.cfg", b"[mypy]\n"),
        ("python -m tools.check", "tools/check.py", b"1\n"),
        ("python -m tools.check", "tools/check/__main__.py", b"1\n"),
        ("PYTHONPATH=ci python -m style", "ci/style.py", b"1\n"),
        ("coverage run -m lintpkg", "lintpkg/rules.py", b"1\n"),
        ("pip install -r requirements/ci.txt && pytest", "requirements/ci.txt", b"pytest\n"),
    )
]
CASES += [
    (
        "package that a recipe runs",
        {"Makefile": b"lint:\n\tpython3 -m lintpkg src\n", "lintpkg/__main__.py": b"1\n"},
        Conventions(commands=("make lint",)),
        {"lintpkg/__main__.py": b"0\n"},
    ),
    (
        "package that is made for a module of a check",
        {"tools/check.py": b"1\n"},
        Conventions(commands=("python -m tools.check",)),
        {"tools/__init__.py": b"raise SystemExit(0)\n"},
    ),
    (
        "file that a recipe's option names",
        {
            "Makefile": b"test:\n\t$(MAKE) -f ci.make\n",
            "ci.make": b"test:\n\t./ci/all\n",
            "ci/all": b"pytest\n",
        },
        Conventions(commands=("make test",)),
        {"ci/all": b"true\n"},
    ),
    (
        "plugin that a file of arguments names",
        {"args": b"-p\ncalc_ci\n", "calc_ci.py": b"1\n"},
        Conventions(commands=("pytest @args",)),
        {"calc_ci.py": b"0\n"},
    ),
    (
        "plugin that a configuration with a name of its own names",
        {"ci.ini": b"[pytest]\naddopts =\n  -p calc_ci\n", "calc_ci.py": b"1\n"},
        Conventions(frozenset({"pytest"}), ("pytest -c ci.ini",)),
        {"calc_ci.py": b"0\n"},
    ),
    (
        "plugin that a conftest.py names",
        {"conftest.py": b"pytest_plugins = ('calc.fixtures', 'calc.more')\n", "src/calc/fixtures.py": b"1\n"},
        PYTEST,
        {"src/calc/fixtures.py": b"0\n"},
    ),
    (
        "package that a conftest.py names as a plugin, with its type",
        {"tests/conftest.py": b"pytest_plugins: str = 'more,calc'\n", "src/calc/__init__.py": b"1\n"},
        PYTEST,
        {"src/calc/__init__.py": b"0\n"},
    ),
    (
        "plugin that the configuration of pytest names",
        {"pytest.ini": b"[pytest]\naddopts = -q -p calc_ci\n", "calc_ci.py": b"1\n"},
        Conventions(frozenset({"pytest"}), ("pytest",)),
        {"calc_ci.py": b"0\n"},
    ),
]


HONEST: list[tuple[str, Tree, Conventions, dict[str, bytes | TreeEntry | None]]] = [
    (
        "code",
        PYTHON,
        PYTEST,
        {"src/shop/cart.py": b"import json\n\ndef total(prices):\n    return sum(prices)\n"},
    ),
    (
        "module of a package of one's own",
        PYTHON,
        PYTEST,
        {"src/shop/socket.py": b"", "src/shop/code/a.py": b""},
    ),
    (
        "code beside a plugin that a conftest.py names",
        {"conftest.py": b"pytest_plugins = 'calc'\n", "src/calc/__init__.py": b"", "src/calc/add.py": b"1\n"},
        PYTEST,
        {"src/calc/add.py": b"0\n"},
    ),
    ("directory that is no package", PYTHON, PYTEST, {"code/a.py": b"", "app/calendar.py": b""}),
    ("new module", PYTHON, PYTEST, {"src/shop/json.py": b"", "src/shop/sub/__init__.py": b""}),
    (
        "makefile that no check uses",
        PYTHON,
        Conventions(frozenset({"pytest"}), ("pytest -q",)),
        {"Makefile": b""},
    ),
    (
        "ignored files, where no check calls a linter that reads them",
        {"Makefile": b"test:\n\tpytest\n"},
        PYTEST,
        {".gitignore": b"build/\n"},
    ),
    (
        "link to a script",
        PYTHON,
        PYTEST,
        {"code": TreeEntry(b"src/shop/cart.py", SYMLINK), "a": TreeEntry(b"b", SYMLINK)},
    ),
    (
        "module becomes a package",
        PYTHON,
        PYTEST,
        {"src/shop/cart.py": None, "src/shop/cart/__init__.py": b""},
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
        Conventions(frozenset({"pytest"}), ("inv test",)),
        {"src/shop/tasks.py": b"2"},
    ),
    (
        "product that a configuration of jest names",
        {"jest.config.js": b"module.exports = {moduleNameMapper: {a: 'lib/a.js'}}", "lib/a.js": b"1"},
        ONLY["node"],
        {"lib/a.js": b"2"},
    ),
    (
        "product that a check is told to look at",
        {
            **dict.fromkeys(
                ("goods.py", "shop/__main__.py", "README.md", "api/shop.yaml", "bin/shop.ini", "goods.js"),
                b"1\n",
            ),
            "shop/part.py": b"1\n",
        },
        Conventions(
            frozenset({"pytest"}),
            (
                "pytest -m shop --cov=shop --doctest-modules goods.py",
                "mypy --strict goods.py -p shop",
                "prettier --check README.md && yamllint api/shop.yaml && python -m shop --self-test",
                "bin/shop --config bin/shop.ini && ruff check --fix goods.py",
                "uv run mypy goods.py && uv run --group dev ruff check shop/part.py && env CI=1 black goods.py",
                "sh ci.sh goods.py && python -m py_compile shop/part.py && timeout 5 python -m mypy goods.py",
                "[ -f goods.py ] && node --check goods.js && python3 -W error -m mypy goods.py",
            ),
        ),
        {
            **dict.fromkeys(
                ("goods.py", "shop/__main__.py", "README.md", "api/shop.yaml", "bin/shop.ini", "goods.js"),
                b"2\n",
            ),
            "shop/part.py": b"2\n",
        },
    ),
    ("code beside inline tests", CARGO, ONLY["cargo"], {"src/lib.rs": LIB.replace(b"{ 0 }", b"{ 3 }")}),
]

LIFTED: list[tuple[str, Tree, Conventions, dict[str, bytes | TreeEntry | None]]] = [
    (
        "further target that is no file",
        {"Makefile": b".PHONY: lint\nlint:\n\truff check\n"},
        Conventions(commands=("make lint",)),
        {"Makefile": b".PHONY: lint run\nlint:\n\truff check\nrun:\n\tpython -m shop\n"},
    ),
    (
        "what the story's check runs and the story builds",
        {"kitty.py": b""},
        Conventions(frozenset({"unittest"}), story_commands=("python3 kitty.py settle",)),
        {"kitty.py": b"print(1)\n"},
    ),
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
        "script of a recipe that a story is to build",
        {"Makefile": b"test:\n\t./tools/lint.sh\n", "tools/lint.sh": b"false\n"},
        Conventions(frozenset({"pytest"}), ("make test",)),
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


def _ids(
    cases: Sequence[tuple[str, Tree, Conventions, dict[str, bytes | TreeEntry | None]]],
) -> dict[str, Any]:
    return {"argvalues": [case[1:] for case in cases], "ids": [case[0] for case in cases]}


@pytest.mark.parametrize(("before", "conventions", "after"), **_ids(CASES))
def test_what_decides_about_an_attempt_is_not_taken_from_it(before, conventions, after):
    """Tests, configuration, scripts of checks and what would stand in their place are left out, each with a reason."""
    found = left_out(before, after, conventions)
    assert found
    assert all(found.values())


@pytest.mark.parametrize(("before", "conventions", "after"), **_ids(HONEST))
def test_honest_work_is_taken(before, conventions, after):
    """Code, data and files that no check depends on may change, whatever they are called."""
    assert left_out(before, after, conventions) == {}


@pytest.mark.parametrize(("before", "conventions", "after"), **_ids(LIFTED))
def test_a_story_may_change_protected_files_that_it_names(before, conventions, after):
    """Configuration, build files and scripts are protected, and can be lifted by the story; tests never are."""
    found = left_out(before, after, conventions)
    assert found
    assert [path for path in found if not protection(before, conventions).is_unlockable_by_story(path)] == []
    assert not protection(PYTHON, PYTEST).is_unlockable_by_story("tests/test_cart.py")


@pytest.mark.parametrize(
    "text",
    [
        LIB.replace(b"3", b"0"),
        LIB[: LIB.index(b"#[cfg")],
        b"macro_rules! assert_eq { ($($any:tt)*) => {} }\n" + LIB,
        LIB.replace(b"{ 0 }", b"{ if cfg!(test) { 3 } else { 0 } }"),
        b'#[cfg_attr(test, path = "fake.rs")]\nmod a;\n' + LIB,
        LIB.replace(b"{ 0 }", b"{ if cfg!(all(unix, any(test))) { 3 } else { 0 } }"),
        b"#[cfg(all(not(any(test))))]\nmod a;\n#[cfg(all(test))]\nmod b;\n" + LIB,
        b"const A: [char; 2] = ['\\u{0____________1}','\"']; const B: &str = \" /* \";\n"
        b"macro_rules! assert_eq { ($($t:tt)*) => {}; }\n// */\n" + LIB,
        b'const A: &CStr = cr#""/*"#;\nmacro_rules! assert_eq { () => {} }\n// */\n' + LIB,
        b'#[cfg_attr(any(test), path = "good.rs")]\nmod bad;\n' + LIB,
        b'#[cfg(not(any(feature = "%b", test)))]\nfn half() {}\n' % (b"a" * 300) + LIB,
        b"macro_rules /* %b /* */ */ ! // a\n r#assert_eq { ($($any:tt)*) => {} }\n" % (b"a\n" * 200) + LIB,
    ],
    ids=[
        "changed",
        "gone",
        "other assertions",
        "other code for tests",
        "another file for tests",
        "other code, less plainly",
        "other module, less plainly",
        "after a long character",
        "after a raw C string",
        "another file, less plainly",
        "after a long condition",
        "comments",
    ],
)
def test_what_an_attempt_does_to_tests_beside_code_of_rust_is_seen(text):
    """Such tests cannot be put back without the code, so that they are compared, and what would get round them."""
    was, now = LIB.decode(), text.decode()
    assert changed_inline_tests(was, now) or reaches_tests(now) - reaches_tests(was)


def _assembled(runner: str, text: bytes) -> Assembled:
    conventions = Conventions(frozenset({runner}))
    before = GitTree(entries(CARGO))
    changes = [Change(b"src/lib.rs", 0o100644, text)]
    return assemble(before, protection(CARGO, conventions), changes, named=())


def test_tests_beside_code_are_compared_where_cargo_runs_them():
    """Elsewhere a file of Rust is product code like any other."""
    other = LIB.replace(b"3", b"0")
    assert [bool(_assembled(runner, other).complaints) for runner in ("cargo", "pytest")] == [True, False]


def test_files_of_rust_with_another_ending_are_compared():
    """`#[path = "calm.inc"]` and `include!` make any file a part of the code."""
    change = Change(b"src/calm.inc", 0o100644, b"macro_rules! assert_eq { () => {}; }\n")
    found = [
        assemble(
            GitTree(entries(CARGO)), protection(CARGO, Conventions(frozenset({runner}))), [change], named=()
        )
        for runner in ("cargo", "pytest")
    ]
    assert [bool(each.complaints) for each in found] == [True, False]


def test_large_files_of_rust_are_compared():
    """Also where they are larger than the files of a tree that are read."""
    text = b"// a\n" * 300_000 + b"macro_rules! assert_eq { () => {} }\n"
    change = Change(b"src/large.rs", 0o100644, text)
    protected = protection(CARGO, ONLY["cargo"])
    assert assemble(GitTree(entries(CARGO)), protected, [change], named=()).complaints


@pytest.mark.parametrize(
    ("path", "before", "after", "is_refused"),
    [
        ("lib/cart.js", b"x", b"// \0\n", True),
        ("lib/new.js", None, b"// \0\n", True),
        ("LICENCE", b"x", b"\0", True),
        ("logo.png", None, b"\0", False),
        ("logo.png", b"\0", b"\0\0", False),
        ("lib/cart.js", b"x", b"y", False),
    ],
)
def test_code_stays_text_that_a_diff_shows(path, before, after, is_refused):
    """Reviewer and judge would see no line of a file with a NUL; a picture has none anyway."""
    tree = NODE if before is None else {**NODE, path: before}
    protected, change = protection(tree, ONLY["node"]), Change(path.encode(), 0o100644, after)
    assembled = assemble(GitTree(entries(tree)), protected, [change], named=())
    assert ["NUL" in each for each in assembled.complaints] == [True] * is_refused


def test_tests_stay_text_that_a_diff_shows():
    """The same of what a test writer changes; data of tests may be anything."""
    changes = [Change(path, 0o100644, b"\0") for path in (b"test/a.test.js", b"test/data/a.png")]
    kept, dropped = only_tests(changes, ONLY["node"])
    assert [change.path for change in kept] == [b"test/data/a.png"]
    assert "NUL" in dropped[0]


MORE = "    #[test]\n    fn more() { assert_eq!(super::total(), 3); }\n"


@pytest.mark.parametrize(
    ("old", "new", "is_changed"),
    [
        ("mod tests {\n", "mod tests {\n" + MORE, False),
        ("3); }\n}", "3); }\n\n" + MORE + "}", False),
        ("mod tests {\n", "mod tests {\n" + MORE.replace("more", "total"), True),
        ("mod tests {\n", "mod tests {\n    fn total() -> i32 { 3 }\n" + MORE, True),
        ("mod tests {\n", "mod tests {\n" + MORE.replace("}\n", "} fn total() -> i32 { 3 }\n"), True),
        ("mod tests {\n", "mod tests {\n    /* /* */\n" + MORE + "    */\n", True),
        ("    #[test]", "    #[ignore]\n" + MORE + "    #[test]", True),
        ("#[cfg(test)]", "/* /* */ #[cfg(test)]", True),
        ("3); }", "3 ); }", True),
    ],
)
def test_a_module_of_tests_may_have_further_ones(old, new, is_changed):
    """An implementor may add tests beside the code; what is there stays as it is, with the same names in reach."""
    was = LIB.decode()
    assert bool(changed_inline_tests(was, was.replace(old, new, 1))) == is_changed


@pytest.mark.parametrize(
    ("before", "command", "path"),
    [
        (_LINT, "make lint", "lint/notes.txt"),
        ({}, "ruff check .", ".gitignore"),
        ({}, "ruff check .", "src/.ignore"),
        (_LINT, "make lint", ".gitignore"),
        ({"lint.sh": b"exec black --check ."}, "sh lint.sh", ".gitignore"),
        ({"package.json": b'{"scripts": {"lint": "prettier --check ."}}'}, "npm run lint", ".gitignore"),
        ({}, "ty check", ".gitignore"),
        ({}, "npx oxlint", ".gitignore"),
        ({}, "typos", ".ignore"),
        ({}, "uvx pyrefly check", ".gitignore"),
        ({"pyproject.toml": b'[tool.poe.tasks]\nlint = "ruff check"'}, "poe lint", ".gitignore"),
        ({"pyproject.toml": b'[tool.tox]\nlegacy_tox_ini = "ruff check"'}, "tox", ".gitignore"),
        (
            {"pyproject.toml": b'[tool.hatch.envs.a.scripts]\nlint = "ty check"'},
            "hatch run lint",
            ".gitignore",
        ),
        ({"setup.cfg": b"[tox:tox]\n[testenv]\ncommands = ruff check"}, "tox", ".gitignore"),
        ({".pre-commit-config.yaml": b"- id: ruff"}, "pre-commit run -a", ".gitignore"),
        ({"ci.make": b"lint:\n\truff check"}, "make -f ci.make", ".gitignore"),
        ({}, "mypy --exclude-gitignore .", ".gitignore"),
        ({"mypy.ini": b""}, "npx standard", ".gitignore"),
        ({}, "npx knip", ".gitignore"),
        ({"Makefile": b"lint:\n\tmypy --exclude-gitignore ."}, "make lint", ".gitignore"),
    ],
)
def test_a_check_is_not_switched_off(before, command, path):
    """By a directory in place of a target of make, or by a file that a linter takes for what to leave out."""
    assert left_out(before, {path: b"*.py"}, Conventions(frozenset({"pytest"}), (command,)))


_CI = {"ci/run.sh": b"python3 -m unittest -q\n", "run_all.py": b"import unittest\n", "ci/run": b"exit 1\n"}


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("bash -eo pipefail ci/run.sh", "ci/run.sh"),
        ("sh -e ci/run", "ci/run"),
        ("bash -o errexit -c 'ci/run.sh'", "ci/run.sh"),
        ("sh < ci/run.sh", "ci/run.sh"),
        ("cat ci/run.sh | sh", "ci/run.sh"),
        ("timeout 300 sh ci/run", "ci/run"),
        ("timeout -k 5 300 ci/run.sh", "ci/run.sh"),
        ("env -u CI sh ci/run", "ci/run"),
        ("env -i CI=1 ci/run.sh", "ci/run.sh"),
        ("sudo -E nice -n 5 ci/run.sh", "ci/run.sh"),
        ("stdbuf -oL ./ci/run", "ci/run"),
        ("echo | xargs -n1 sh ci/run", "ci/run"),
        ("find . -maxdepth 0 -exec sh ci/run.sh {} ;", "ci/run.sh"),
        ("eval 'sh ci/run'", "ci/run"),
        ("flock lock sh ci/run.sh", "ci/run.sh"),
        ("python3 -W error run_all.py", "run_all.py"),
        ("python3 -bW error run_all.py", "run_all.py"),
        ("uv run --with x python run_all.py", "run_all.py"),
        ("uv run run_all.py", "run_all.py"),
        ("poetry run python -u run_all.py", "run_all.py"),
        ("conda run -n env python run_all.py", "run_all.py"),
        ("coverage run --branch run_all.py", "run_all.py"),
        ("python -m coverage run run_all.py", "run_all.py"),
        ("python -m cProfile -o out run_all.py", "run_all.py"),
        ("python3 checks", "checks/__main__.py"),
        ("for each in gates/*; do sh $each || exit 1; done", "gates/one"),
        ("for each in gates/*; do sh $each || exit 1; done", "gates/new"),
        ("node --require ./setup.js run.js", "run.js"),
        ("node --require ./setup.js run.js", "setup.js"),
        ('NODE_OPTIONS="--require ./setup.js" node run.js', "setup.js"),
        ('NODE_OPTIONS="--require ./setup.js" node run.js', "run.js"),
        ("node run", "run.js"),
        ("deno run -A run.js", "run.js"),
        ("BASH_ENV=ci/run bash -c true", "ci/run"),
        ("make -sf ci.make test", "ci.make"),
        ("make -sfci.make test", "ci.make"),
        ("make -sf ci.make test", "ci/run"),
        ("MAKEFILES=ci.make make test", "ci.make"),
        ("pytest -qc ci.ini", "ci.ini"),
        ("make SHELL=ci/run", "ci/run"),
    ],
)
def test_scripts_behind_options_and_wrappers_are_protected(command, path):
    """Whatever stands before a script, it is what the check runs."""
    before = {
        **_CI,
        **dict.fromkeys(("run.js", "setup.js", "checks/__main__.py", "gates/one", "ci.ini"), b"1\n"),
        "ci.make": b"test:\n\tsh ci/run\n",
        "src/app.py": b"1\n",
    }
    after = {path: b"other", "src/app.py": b"2\n"}
    assert left_out(before, after, Conventions(frozenset({"unittest", "node"}), (command,))).keys() == {path}


@pytest.mark.parametrize(
    ("makefile", "path"),
    [
        (b"PYTHON = python3\ntest:\n\t$(PYTHON) run_all.py\n", "run_all.py"),
        (b"test:\n\t$(PYTHON) -W error run_all.py\n", "run_all.py"),
        (b"CI := ci\nRUN = $(CI)/run\ntest:\n\tsh ${RUN}\n", "ci/run"),
        (b"test:\n\tfor each in gates/*; do sh $$each; done\n", "gates/one"),
        (b"SHELL := ci/run\ntest:\n\tpytest\n", "ci/run"),
        (b"export BASH_ENV = $(CURDIR)/ci/run\ntest:\n\tpytest\n", "ci/run"),
        (b"export NODE_OPTIONS = --require ./setup.js\ntest:\n\tnode --test\n", "setup.js"),
        (b"-include $(wildcard local/*.make)\ntest:\n\tpytest\n", "local/a.make"),
        (b"-include $(wildcard local/*.make)\ntest:\n\tpytest\n", "local/new.make"),
        (b"include parts.make\n", "ci/run"),
    ],
)
def test_what_a_makefile_computes_is_protected(makefile, path):
    """By the values of its variables, its loops and its wildcards, in the makefiles that it includes, too."""
    before = {
        **_CI,
        **dict.fromkeys(("gates/one", "setup.js", "local/a.make"), b"1\n"),
        "parts.make": b"test:\n\tsh ci/run\n",
        "Makefile": makefile,
        "shop.py": b"1\n",
    }
    after = {path: b"other", "shop.py": b"2\n"}
    assert left_out(before, after, Conventions(frozenset({"unittest"}), ("make test",))).keys() == {path}


@pytest.mark.parametrize(
    ("command", "configuration"),
    [
        ("PYTHONPATH=app python3 -m unittest", {}),
        ("env PYTHONPATH=lib2:./app pytest", {}),
        ("make test", {"Makefile": b"export PYTHONPATH := $(CURDIR)/app\ntest:\n\tpytest\n"}),
        (
            "pytest",
            {"pyproject.toml": b'[tool.pytest.ini_options]\npythonpath = [\n  "lib2",\n  "app",\n]\n'},
        ),
        ("pytest", {"pytest.ini": b"[pytest]\npythonpath =\n    lib2\n    app\n"}),
        ("tox", {"tox.ini": b"[testenv]\nsetenv =\n    PYTHONPATH = {toxinidir}/app\n"}),
        ("python3 app/check.py", {"app/check.py": b"1"}),
    ],
)
def test_what_python_imports_from_has_no_new_module_of_the_runner(command, configuration):
    """Directories of PYTHONPATH, of pytest's `pythonpath` and of scripts come before the standard library."""
    found = left_out(
        {"app/shop.py": b"", **configuration},
        {"app/unittest.py": b"", "app/cart.py": b""},
        Conventions(frozenset({"pytest", "unittest"}), (command,)),
    )
    assert found.keys() == {"app/unittest.py"}


@pytest.mark.parametrize(
    "name",
    [
        ".shellcheckrc",
        ".importlinter",
        ".yapfignore",
        ".style.yapf",
        "knip.json",
        "staticcheck.conf",
        "jsconfig.json",
    ],
)
def test_configuration_of_linters_is_protected(name):
    """Whether it is there or not."""
    assert left_out({}, {name: b""}, PYTEST)


@pytest.mark.parametrize(
    ("path", "protected", "is_decisive"),
    [
        ("pyproject.toml", ["tests/test_cart.py"], True),
        ("pyproject.toml", [], True),
        ("pyproject.toml", None, False),
        ("unittest.py", None, True),
        ("traceback.py", None, False),
        ("traceback.py", [], True),
        ("tests/__init__.py", ["tests/test_cart.py"], True),
        ("tests/test_cart.py", [], False),
        ("tests/conftest.py", [], True),
        (".gitattributes", [], False),
        ("src/shop/cart.py", ["tests/test_cart.py"], False),
    ],
)
def test_what_decides_the_check_of_a_run(path, protected, is_decisive):
    """Where a user protects tests, even such as are not there yet, the files that decide a check may not change."""
    after = {path: TreeEntry(b"other")}
    found = decisive_changes([path], entries(PYTHON), after.get, PYTEST, protected=protected)
    assert (path in found) == is_decisive


def test_installed_modules_that_tests_import_are_not_replaced():
    """A new module of such a name would be imported in their place; one that is built already is the project's own."""
    protected = protection(PYTHON, PYTEST, imported=["assertpy", "shop"])
    new = {
        "assertpy.py": TreeEntry(b""),
        "src/assertpy/__init__.py": TreeEntry(b""),
        "src/shop/more.py": TreeEntry(b""),
    }
    assert [path for path in new if protected.protection_reason(path, new.get)] == [
        "assertpy.py",
        "src/assertpy/__init__.py",
    ]


def test_modules_that_files_import_are_known():
    """By lines of their own, wherever these stand; relative imports and words in other places are none."""
    text = b"import os.path as p, assertpy\nfrom a.b import c\nfrom . import d\ndef f():\n    import e # g\n"
    assert imported_modules([text, b"x = 'import h'\n\xff import i"]) == {"os", "assertpy", "a", "e"}


def test_files_that_a_runner_ran_tests_of_are_protected():
    """Whatever they are called: a project may collect its tests by rules of its own."""
    before = {"checks/cart.py": b"", "src/lib.rs": LIB}
    reported = ["checks/cart.py", "src/lib.rs"]
    assert left_out(
        before, {"checks/cart.py": b"1", "src/lib.rs": b"2"}, PYTEST, reported=reported
    ).keys() == {"checks/cart.py"}


def test_without_known_runners_all_conventions_count():
    """Where nothing is known of the runner, whatever might be a test is protected."""
    after = {"conftest.py": b"", "a_test.go": b"", "jest.config.js": b"", "src/test/java/A.java": b""}
    assert left_out({}, after, Conventions()).keys() == after.keys()


def test_tests_with_names_of_their_own_can_be_named():
    """What the project calls its tests against all conventions is protected if it is named."""
    conventions = Conventions(frozenset({"pytest"}), tests=("checks/*.py",))
    assert left_out({"checks/deep/cart.py": b""}, {"checks/deep/cart.py": b"pass"}, conventions)


def test_the_list_names_each_protected_file_with_the_reason():
    """So that roles and users know it beforehand; what no attempt may add is in it, too."""
    lines = protection(PYTHON, PYTEST).describe()
    assert "tests/test_cart.py is a test or belongs to tests" in lines
    assert "Makefile says how checks run" in lines
    assert any("test_*.py" in line for line in lines[-3:])
    assert protection(PYTHON, PYTEST).describe(most=1)[1].endswith("more")


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
    """Whatever bytes a file has, it is judged without failing, and by its name alone."""
    conventions = Conventions(commands=("make test",))
    assert left_out({name: was}, {name: was}, conventions) == {}
    assert set(left_out({name: was}, {name: now}, conventions)) <= {name}


@given(st.text(min_size=1, max_size=40), st.binary(max_size=10).map(os.fsdecode))
def test_hostile_paths_are_only_data(path, more):
    """Whatever a path is, it is judged without failing; one that leaves the tree is left out."""
    found = left_out(PYTHON, {path: b"", f"tests/{more}": b""}, PYTEST)
    assert found.get(f"tests/{more}")
    if path.startswith("/") or ".." in path.split("/"):
        assert found[path]


@pytest.mark.parametrize(
    ("name", "data"),
    slow_after(
        3,
        [
            ("pyproject.toml", b"a = " + b"[" * 100_000),
            ("package.json", b"[" * 100_000),
            ("pom.xml", b"<a>" * 100_000),
            ("a.rs", b"/*" * 200_000),
            ("a.rs", b"// macro_rules! " + b"/" * 64 + b"\n"),
            ("a.rs", b"// macro_rules! " + b"/" * 200_000 + b"\n"),
            ("a.rs", b"macro_rules!" + b"//\n" * 60_000),
            ("a.rs", b"macro_rules! /**/" * 12_000 + b" " * 10_000),
            ("a.rs", b"macro_rules" + b" " * 200_000),
            ("a.rs", b'\\"' * 100_000 + b"\\"),
            ("a.rs", b"#[" * 100_000),
            ("a.rs", b"cfg(not(" * 25_000),
            ("a.rs", b"cfg!(" * 40_000),
            ("a.rs", b"'\\u{" * 60_000),
            ("a.rs", b"'\\u{" + b"_" * 200_000),
            ("a.rs", b"cfg(not(test" * 20_000),
            ("a.rs", b"#[cfg(all(" * 25_000),
            ("a.rs", b"#[a::" + b"a::" * 60_000),
            ("a.rs", b"cfg_attr(test, " * 13_000),
            ("a.rs", b"#[test]" * 50_000),
            ("test_a.py", b"\n" * 200_000 + b"import"),
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
            ("Makefile", b"a0" + b" " * 200_000),
            ("Makefile", b"include" + b"\n" * 200_000),
            ("Makefile", b"a0:\n\tpython -m a.check\n" * 10_000),
            ("Makefile", b"a0:\n\t" + b"-f Makefile " * 20_000),
            ("Makefile", b"a0:\n\tpytest @Makefile -f Makefile\n" * 5_000),
            ("tox.ini", b"-p a " * 40_000),
            ("Makefile", b"a = " + b"$(a)" * 250 + b"\n" + b"$(a)" * 50_000),
            ("Makefile", b"a:\n\t" + b"sh -c " * 50_000),
            ("Makefile", b"a:\n\t" + b"for a in b " * 20_000),
            ("Makefile", b"a:\n\tsh " + b"< " * 100_000),
            ("Makefile", b"PYTHONPATH" + b" " * 200_000),
            ("Makefile", b"A" * 200_000 + b"\n" + b"export " * 30_000),
            ("Makefile", b"a:\n\tsh " + b"*" * 1_000 + b"\n"),
            ("pytest.ini", b"pythonpath = a" + b"\n a" * 60_000),
            ("Makefile", b"a0 " * 50_000 + b": " + b"a1 " * 50_000),
            ("Makefile", b"".join(b"a%d " % n for n in range(20_000)) + b": " + b"b " * 50_000),
        ],
    ),
    ids=lambda value: value if isinstance(value, str) else value[:8].decode(),
)
def test_files_made_to_take_long_do_not(name, data):
    """Deep nesting and openings without an end are judged like any other file, within the test's time."""
    conventions = Conventions(commands=("make a0", "tox"))
    assert set(left_out({name: data}, {name: None}, conventions)) <= {name}
    assert set(left_out({}, {name: data}, conventions)) <= {name}
    may_hold_tests(name, data)
    imported_modules([data])
    changed_inline_tests(LIB.decode(), data.decode())
    reaches_tests(data.decode())


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
    unseen = [name for name in loaded if not left_out({}, {f"{name}.py": b""}, PYTEST)]
    assert (unseen, "socket" in loaded or len(loaded) > 20) == ([], True)
