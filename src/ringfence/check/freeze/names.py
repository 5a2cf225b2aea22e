"""Names that mean something to those who run checks."""

import re
import sys

WHOLE_RUNNER_FILES = {
    "pytest": re.compile(r"conftest\.py|\.?pytest\.(?:ini|toml)|\.coveragerc|noxfile\.py"),
    "unittest": re.compile(r"\.coveragerc|noxfile\.py"),
    "node": re.compile(
        r"\.npmrc|\.yarnrc(?:\.yml)?|\.pnpmfile\.[cm]?js|node\.config\.json|bunfig\.toml|\.taprc"
        r"|\.mocharc(?:\..+)?|(?:jest|vitest|ava|karma|playwright|cypress|babel|nyc)\.(?:config|workspace|conf|setup|preset)\..+"
        r"|(?:[sS]etup[-_]?(?:[tT]ests?|[jJ]est|[vV]itest)|(?:[tT]est|[jJ]est|[vV]itest)s?[-_]?[sS]etup)\.[cm]?[jt]sx?"
        r"|\.babelrc(?:\..+)?|\.swcrc|\.nycrc(?:\..+)?|\.c8rc(?:\..+)?|vitest\.workspace\..+"
    ),
    "go": re.compile(r"go\.env|go\.work"),
    "cargo": re.compile(r"nextest\.toml|rust-toolchain(?:\.toml)?"),
    "maven": re.compile(
        r"junit-platform\.properties|maven\.config|jvm\.config|extensions\.xml|\.mavenrc|testng.*\.xml"
    ),
}
"""Files that say how tests run and nothing else, by name and in whatever directory."""

VITE_FILES = re.compile(r"vite\.config\..+")
"""They say how tests run among other things."""

WHOLE_RUNNER_PATHS = {
    "pytest": re.compile(r"(?:.*/)?[^/]+\.(?:egg|dist)-info(?:/.+)?", re.DOTALL),  # may name plugins
    "node": re.compile(r"(?:.*/)?\.(?:yarn|pnp)(?:/|\.).+", re.DOTALL),
    "cargo": re.compile(r"(?:.*/)?\.cargo/.+", re.DOTALL),
    "maven": re.compile(
        r"(?:.*/)?(?:\.mvn/.+|META-INF/services/org\.(?:junit|testng|opentest4j|assertj)\..*)", re.DOTALL
    ),
}

EVERYWHERE = re.compile(r"sitecustomize\.py|usercustomize\.py|.*\.pth|pyvenv\.cfg|\.gitattributes|\.envrc")
"""Files that are read before whatever program runs, or that change what is checked out."""

CHECK_FILES = re.compile(
    r"\.?mypy\.ini|\.?ruff\.toml|\.flake8|\.?pylintrc(?:\.toml)?|pyrightconfig\.json|\.pre-commit-config\.yaml"
    r"|\.eslintrc(?:\..+)?|eslint\.config\..+|\.eslintignore|biome\.jsonc?|\.oxlintrc\.json|tsconfig(?:\..+)?\.json"
    r"|\.prettierrc(?:\..+)?|\.prettierignore|prettier\.config\..+|\.stylelintrc(?:\..+)?|\.stylelintignore|stylelint\.config\..+"
    r"|\.?ty\.toml|\.isort\.cfg|\.pydocstyle|\.pycodestyle|dprint\.jsonc?|detekt\.ya?ml"
    r"|\.?clippy\.toml|\.?rustfmt\.toml|\.golangci\.(?:yml|yaml|toml|json)|checkstyle.*\.xml|pmd.*\.xml|\.bandit"
)
"""What says how strict linters and type checkers are."""

ENVIRONMENT_FILES = re.compile(r"\.env(?:\..+)?")
ENVIRONMENT_NAMES = re.compile(
    r"\s*(?:export\s+)?(?:PYTEST|PYTHON|NODE_|NPM_CONFIG|npm_config|JEST|VITEST|GO[A-Z]*\b|CARGO|RUST|MAVEN|MVN|JAVA_|JDK_"
    r"|LD_|PATH\b|BASH_ENV|ENV\b|COVERAGE)"
)
"""Variables that change what a runner does."""

RUNNER_MODULES = frozenset(
    {
        *("pytest", "_pytest", "pluggy", "xdist", "pytest_asyncio"),
        *("unittest", "doctest", "nose", "nose2", "sitecustomize", "usercustomize"),
    }
)
"""Python modules that run tests, or run before them."""

_IMPORTED = """
abc argparse ast asyncio atexit builtins codecs collections contextlib copy dataclasses difflib dis encodings enum
fnmatch functools gc glob hashlib importlib iniconfig inspect io itertools json linecache locale logging marshal mock
numbers opcode operator os packaging pathlib pdb pickle pkgutil platform posixpath pprint py pygments random re reprlib
runpy shlex shutil signal site stat string struct subprocess sys sysconfig tempfile textwrap threading time timeit token
tokenize tomllib traceback types typing uuid warnings weakref zipfile zipimport
"""
SHADOWED_MODULES = RUNNER_MODULES.union(_IMPORTED.split())
"""What a runner imports of others: a file of that name where it looks first is run inside it."""

_PLUGINS = ("anyio", "benchmark", "cov", "django", "mock", "randomly", "subtests", "timeout", "xdist")
SHADOWED_AT_TOP = SHADOWED_MODULES.union(
    sys.stdlib_module_names - {"test"},
    {"exceptiongroup", "tomli", "colorama", "coverage", "execnet", *(f"pytest_{name}" for name in _PLUGINS)},
)
"""Where a project's own modules begin: whatever the standard library has, too, and common plugins and their needs."""

DEPENDENCY_DIRECTORIES = frozenset(
    {
        "node_modules",
        "site-packages",
        "dist-packages",
        "vendor",
        "__pypackages__",
        ".venv",
        "venv",
        "__pycache__",
    }
)
"""Where installed packages lie. Whoever writes there writes the runner."""

RUNNER_PACKAGES = re.compile(
    r"jest|@jest/.+|vitest|@vitest/.+|mocha|chai|ava|tap|jasmine|karma|nyc|c8|@playwright/test|babel-jest|ts-jest|tsx|ts-node"
)
"""Packages of npm that run tests."""

JAVA_LIBRARIES = re.compile(
    r"(?:^|/)(org/(?:junit|testng|mockito|assertj|hamcrest|opentest4j)|junit/framework)/.*\.(?:java|class|kt|groovy|scala)$",
    re.DOTALL,
)
"""Classes of the libraries that run tests and assert: a project's own come before those of its dependencies."""

CARGO_TEST_CRATES = re.compile(
    r"(?:assert|pretty[-_]assertions|more[-_]asserts|similar[-_]asserts|insta|rstest|test[-_]case|proptest|quickcheck"
    r"|mockall|googletest|trybuild|speculoos|serial[-_]test|tokio[-_]test|wiremock)(?:[-_].*)?|approx|claims?|k9|predicates"
)
"""Crates that tests are written with. Whichever table names one, tests are given it."""
