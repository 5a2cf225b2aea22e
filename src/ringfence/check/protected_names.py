"""Names of the files that decide what a check says, by runner and tool. A pattern is a shell's, of one name or a path.

A pattern without a slash is compared with the last part of a path; one that ends in `/**` means a directory of that
name, wherever it lies, with all that is in it; one that begins with a slash means a file at the top.
"""

import re
import sys
from collections.abc import Mapping
from fnmatch import translate
from functools import lru_cache

Patterns = tuple[str, ...]

TEST_FILES: Mapping[str, Patterns] = {
    "pytest": ("tests/**", "test/**", "test_*.py", "*_test.py", "test_*.txt", "conftest.py"),
    "unittest": ("tests/**", "test/**", "test*.py", "*_test.py"),
    "node": (
        *(f"{name}/**" for name in ("test", "tests", "__tests__", "__mocks__", "__snapshots__", "e2e", "cypress")),
        *(f"*{mark}.{end}" for mark in (".test", ".spec", "-test", "_test", "-spec", "_spec")
          for end in ("[jt]s", "[cm][jt]s", "[jt]sx")),
        *("test.[jt]s", "test.[cm][jt]s", "test-*.[jt]s", "test-*.[cm][jt]s", "*.snap", "*.snapshot", "*.feature"),
    ),
    "go": ("testdata/**", "*_test.go"),
    "cargo": ("tests/**",),
    "maven": (
        *("src/test/**", "src/it/**", "src/integrationTest/**", "src/integration-test/**"),
        *(f"{name}.{end}" for name in ("Test*", "*Test", "*Tests", "*TestCase", "IT*", "*IT", "*ITCase")
          for end in ("java", "kt", "groovy", "scala")),
    ),
}  # fmt: skip
"""Tests, and the directories where tests keep their helpers and data."""

NOT_TESTS: Mapping[str, Patterns] = {"maven": ("src/main/**",)}
"""Directories of product code, whatever their files are called."""

CONFIGURATION_FILES: Mapping[str, Patterns] = {
    "": (
        *("sitecustomize.py", "usercustomize.py", "*.pth", "pyvenv.cfg", ".gitattributes", ".envrc"),
        *(".env", ".env.test", ".env.test.*", ".env.ci", ".env.local", ".env.production", ".env.development"),
    ),
    "pytest": (
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
        *("setup.py", "pyproject.toml", ".coveragerc", "noxfile.py", "*.egg-info/**", "*.dist-info/**"),
    ),
    "unittest": ("setup.cfg", "setup.py", "pyproject.toml", "tox.ini", ".coveragerc", "noxfile.py"),
    "node": (
        *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock*"),
        *("pnpm-workspace.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.[cm]js", ".pnpmfile.js", ".pnp.*"),
        *("node.config.json", "bunfig.toml", ".taprc", ".mocharc", ".mocharc.*", ".babelrc", ".babelrc.*", ".swcrc"),
        *(".nycrc", ".nycrc.*", ".c8rc", ".c8rc.*", ".yarn/**"),
        *(f"{tool}.{what}.*" for tool in ("jest", "vitest", "ava", "karma", "playwright", "cypress", "babel", "nyc")
          for what in ("config", "conf", "workspace", "setup", "preset")),
        *("vite.config.*", "setup[Tt]ests.*", "setup[-_][Tt]ests.*", "setup[Jj]est.*", "setup-jest.*", "setup_jest.*"),
        *("setup[Vv]itest.*", "setup-vitest.*", "test[Ss]etup.*", "test[-_]setup.*"),
    ),
    "go": ("go.mod", "go.sum", "go.work", "go.work.sum", "go.env"),
    "cargo": (
        *("build.rs", "Cargo.toml", "Cargo.lock", "nextest.toml", "rust-toolchain", "rust-toolchain.toml"),
        ".cargo/**",
    ),
    "maven": (
        *("pom.xml", "junit-platform.properties", ".mavenrc", "testng*.xml", ".mvn/**"),
        *(f"org.{library}.*" for library in ("junit", "testng", "opentest4j", "assertj")),
    ),
}  # fmt: skip
"""Files that say how a runner works, or what it is built and run with, by runner; "": whatever the runner is."""

LINTER_FILES: Patterns = (
    "mypy.ini", ".mypy.ini", "ruff.toml", ".ruff.toml", ".flake8", ".pylintrc", "pylintrc",
    ".pylintrc.toml", "pyrightconfig.json", ".pre-commit-config.yaml", ".eslintrc", ".eslintrc.*",
    "eslint.config.*", ".eslintignore", "biome.json", "biome.jsonc", ".oxlintrc.json", "tsconfig.json",
    "tsconfig.*.json", ".prettierrc", ".prettierrc.*", ".prettierignore", "prettier.config.*",
    ".stylelintrc", ".stylelintrc.*", ".stylelintignore", "stylelint.config.*", "ty.toml", ".ty.toml",
    ".isort.cfg", ".pydocstyle", ".pycodestyle", "dprint.json", "dprint.jsonc", "detekt.yml",
    "detekt.yaml", "clippy.toml", ".clippy.toml", "rustfmt.toml", ".rustfmt.toml", ".golangci.*",
    "checkstyle*.xml", "pmd*.xml", ".bandit", "pyrefly.toml", "typos.toml", "_typos.toml", ".typos.toml",
    ".yamllint", ".yamllint.y*ml", ".markdownlint*", ".codespellrc", ".sqlfluff", ".sqlfluffignore",
    ".shellcheckrc", ".importlinter", ".yapfignore", ".style.yapf", "knip.json", "knip.jsonc", "staticcheck.conf",
    "jsconfig.json", "jsconfig.*.json", ".semgrepignore", "rumdl.toml", ".rumdl.toml", "sgconfig.yml",
)  # fmt: skip
"""Files that say how strict linters and type checkers are."""

TOOL_FILES: Mapping[str, Patterns] = {
    "make": ("Makefile", "makefile", "GNUmakefile", "*.mk"),
    "gmake": ("Makefile", "makefile", "GNUmakefile", "*.mk"),
    "just": ("[Jj]ust[Ff]ile", ".[Jj]ust[Ff]ile", "JUSTFILE", "*.just"),
    "task": ("[Tt]askfile.y*ml", "[Tt]askfile.dist.y*ml"),
    "tox": ("tox.ini", "tox.toml", "setup.cfg", "pyproject.toml"),
    "pre-commit": (".pre-commit-config.yaml",),
    "prek": (".pre-commit-config.yaml", "prek.toml"),
    "lefthook": ("lefthook.y*ml", ".lefthook.y*ml", "lefthook.toml"),
    **dict.fromkeys(("taskipy", "pyprojectx", "pw", "rye"), ("pyproject.toml",)),
    "inv": ("invoke.*", "/tasks.py"),
    "invoke": ("invoke.*", "/tasks.py"),
    "doit": ("dodo.py",),
    "hatch": ("hatch.toml", "pyproject.toml"),
    "uv": ("uv.toml", "uv.lock", ".python-version"),
    "poe": ("poe_tasks.*", "pyproject.toml"),
    "poetry": ("poetry.lock", "poetry.toml"),
    "pdm": ("pdm.lock", "pdm.toml", "pyproject.toml"),
    "nox": ("noxfile.py",),
    "pixi": ("pixi.toml", "pixi.lock", "pyproject.toml"),
    "mise": ("mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml"),
    "turbo": ("turbo.json", "turbo.jsonc"),
    "nx": ("nx.json",),
    "rake": ("[Rr]akefile", "[Rr]akefile.rb"),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun"), ("package.json",)),
}
"""Files of the tools that a check's command calls, by the tool."""

IGNORE_FILES: Patterns = (".gitignore", ".ignore", ".rgignore", ".fdignore")
"""What some linters take for a list of files that they leave out."""

LINTERS_WITH_IGNORE_FILES = (
    *("ruff", "black", "ty", "pyrefly", "typos", "prettier", "biome", "oxlint", "oxfmt", "dprint", "rumdl"),
    *("ast-grep", "semgrep", "lychee", "rg", "fd", "standard", "ts-standard", "knip"),
)
"""Those that do."""

INSTALLED_PACKAGES: Mapping[str, Patterns] = {
    "pytest": ("site-packages/**", "dist-packages/**", "__pypackages__/**", ".venv/**", "venv/**"),
    "unittest": ("site-packages/**", "dist-packages/**", "__pypackages__/**", ".venv/**", "venv/**"),
    "node": ("node_modules/**",),
}
"""Directories of installed packages. Who writes there writes the runner."""

VENDORED_PACKAGES: Mapping[str, Patterns] = {"go": ("vendor/**",)}
"""The same, where only this runner takes them: elsewhere `vendor` is a directory like any other."""

COMPANIONS: Mapping[str, Patterns] = {
    "package.json": ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock*"),
    "pyproject.toml": ("uv.lock", "poetry.lock", "pdm.lock"),
    "go.mod": ("go.sum",),
    "Cargo.toml": ("Cargo.lock",),
}
"""Lock files that change with a file: a story that names the one names the others."""

PRODUCT_EXECUTABLES: Patterns = ("manage.py", "bin/**")
"""Programs of the product, which a check's command may call: what they do is what is checked."""

RUNNER_MODULES = frozenset(
    {
        *("pytest", "_pytest", "pluggy", "xdist", "pytest_asyncio"),
        *("unittest", "doctest", "nose", "nose2", "sitecustomize", "usercustomize"),
    }
)
"""Python modules that run tests, or run before them."""

_PLUGINS = ("anyio", "benchmark", "cov", "django", "mock", "randomly", "subtests", "timeout", "xdist")
_LIBRARIES = (
    "exceptiongroup",
    "tomli",
    "colorama",
    "coverage",
    "execnet",
    "iniconfig",
    "packaging",
    "pygments",
    "py",
)
SHADOWED_MODULES = RUNNER_MODULES.union(
    sys.stdlib_module_names - {"test"}, _LIBRARIES, {f"pytest_{name}" for name in _PLUGINS}
)
"""Python modules that a runner imports, or that another version of Python may have."""

JAVA_LIBRARIES: Patterns = tuple(
    f"{library}/**" for library in ("org/junit", "org/testng", "org/mockito", "org/assertj", "org/hamcrest",
                                    "org/opentest4j", "junit/framework")
)  # fmt: skip
"""Packages of the libraries that run tests: a project's own classes come before those of its dependencies."""


def matches_any(path: str, patterns: Patterns) -> bool:
    """Whether one of some patterns means a path."""
    names, paths = _compiled(patterns)
    return names.match(path.rpartition("/")[2]) is not None or paths.match(path) is not None


@lru_cache(maxsize=256)
def _compiled(patterns: Patterns) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """One expression for the last part of a path, and one for a whole path; each tree has many paths."""
    names = [translate(pattern) for pattern in patterns if "/" not in pattern]
    top = [re.escape(pattern[1:]) + r"\Z" for pattern in patterns if pattern.startswith("/")]
    places = [
        re.escape(pattern.removesuffix("/**")).replace(r"\*", "[^/]*")
        for pattern in patterns
        if pattern.endswith("/**")
    ]
    below = rf"(?:.*/)?(?:{'|'.join(places)})/.*" if places else "(?!)"
    return re.compile("|".join(names) or "(?!)"), re.compile("|".join([below, *top]), re.DOTALL)
