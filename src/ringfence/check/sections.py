"""The sections of shared files that say how checks run: of `pyproject.toml`, `package.json`, `Cargo.toml` and the like.

A run whose user protects its tests may change a dependency there, but no option of the runner: its check is refused if
one of these sections changed (`deciding_files`). They are compared as data; a file that cannot be read counts whole.
"""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from ringfence.check.protected_files import Conventions

_RUNNER_PACKAGES = re.compile(
    r"jest|@jest/.+|vitest|@vitest/.+|mocha|chai|ava|tap|jasmine|karma|nyc|c8|@playwright/test|babel-jest|ts-jest|tsx|ts-node"
)
"""Packages of npm that run tests."""
_CARGO_TEST_CRATES = re.compile(
    r"(?:assert|pretty[-_]assertions|more[-_]asserts|similar[-_]asserts|insta|rstest|test[-_]case|proptest|quickcheck"
    r"|mockall|googletest|trybuild|speculoos|serial[-_]test|tokio[-_]test|wiremock)(?:[-_].*)?|approx|claims?|k9|predicates"
)
"""Crates that tests are written with. Whichever table names one, tests are given it."""
_RUNNER_TOOLS = ("pytest", "pytest-asyncio", "coverage", "nose2", "unittest")
_CHECK_TOOLS = ("mypy", "ruff", "pyright", "basedpyright", "pylint", "flake8", "ty", "black", "isort")
_TASK_TOOLS = {
    "hatch": "hatch",
    "poe": "poe",
    "pdm": "pdm",
    "tox": "tox",
    "taskipy": "task",
    "pixi": "pixi",
    "uv": "uv",
}


def pyproject_part(data: bytes, conventions: Conventions) -> bytes | None:
    """Options of pytest, its plugins, and how strict linters and type checkers are."""
    document = _toml(data)
    if document is None:
        return data
    tools = _table(document, "tool")
    runner = {name: tools[name] for name in _RUNNER_TOOLS if name in tools}
    runner |= {
        name: tools[name] for name, tool in _TASK_TOOLS.items() if name in tools and conventions.calls(tool)
    }
    plugins = _table(document, "project", "entry-points").get("pytest11")
    runner |= {"project.entry-points": plugins} if plugins is not None else {}
    plugins = _table(tools, "poetry", "plugins").get("pytest11")
    runner |= {"poetry.plugins": plugins} if plugins is not None else {}
    check = {name: tools[name] for name in _CHECK_TOOLS if name in tools}
    return _dumped(runner | check)


def package_json_part(data: bytes, conventions: Conventions) -> bytes | None:
    """Scripts that test, configuration of the runners, and which runners they are."""
    document = _json(data)
    if not isinstance(document, dict):
        return data
    kept = {
        key: document[key]
        for key in document
        if key in ("jest", "vitest", "mocha", "ava", "nyc", "c8", "tap", "babel")
    }
    if scripts := _kept_scripts(_table(document, "scripts"), conventions):
        kept["scripts"] = scripts
    for key in ("dependencies", "devDependencies", "peerDependencies", "overrides", "resolutions"):
        if runners := {k: v for k, v in _table(document, key).items() if _RUNNER_PACKAGES.fullmatch(k)}:
            kept[key] = runners
    if programs := _kept_programs(document, kept.get("scripts", {}), conventions):
        kept["bin"] = programs
    check = {key: document[key] for key in ("eslintConfig", "prettier") if key in document}
    return _dumped(kept | check)


def _kept_programs(
    document: Mapping[str, Any], scripts: Mapping[str, Any], conventions: Conventions
) -> dict[str, Any]:
    """Those that a check calls by their name: npx takes a project's own before those that are installed."""
    programs = document.get("bin")
    if isinstance(programs, str):
        programs = {str(document.get("name")).rpartition("/")[2]: programs}
    called = _words((*conventions.commands, *(str(script) for script in scripts.values())))
    return {name: program for name, program in _table({"bin": programs}, "bin").items() if name in called}


_TEST_SCRIPT = re.compile(
    r"(?:pre|post)?(?:test|lint|type-?check|check|tsc)(?:[:.-].*)?|(?:pre|post)?(?:install|prepare)"
)


def _kept_scripts(scripts: Mapping[str, Any], conventions: Conventions) -> dict[str, Any]:
    """Those that a check may call, and those they call in turn."""
    words = _words(conventions.commands)
    kept: dict[str, Any] = {}
    while True:
        more = {
            name: script
            for name, script in scripts.items()
            if name not in kept
            and (_TEST_SCRIPT.fullmatch(name) or re.sub("^(?:pre|post)", "", name) in words or name in words)
        }
        if not more:
            return kept
        kept |= more
        words |= _words(tuple(str(script) for script in more.values()))


def cargo_part(data: bytes, conventions: Conventions) -> bytes | None:  # noqa: ARG001 -- as all sections are called
    """Which targets are tested, by what harness; patched dependencies; lints."""
    document = _toml(data)
    if document is None:
        return data
    kept: dict[str, Any] = {}
    for section in ("lib", "bin", "test", "example", "bench"):
        entries = document.get(section)
        flags = [_flags(entry) for entry in (entries if isinstance(entries, list) else [entries])]
        if section == "test" and entries is not None:
            kept[section] = entries
        elif any(flags):
            kept[section] = [each for each in flags if each]
    package = _table(document, "package")
    kept |= {f"package.{key}": package[key] for key in ("autotests", "autolib", "autobins") if key in package}
    kept |= {f"profile.{key}": value for key, value in _table(document, "profile").items() if key == "test"}
    if copies := _copies(document):
        kept["dependencies"] = copies
    workspace = _table(document, "workspace")
    kept |= {f"workspace.{key}": workspace[key] for key in ("exclude", "default-members") if key in workspace}
    kept |= {key: document[key] for key in ("patch", "replace") if key in document}
    lints = {"lints": document.get("lints"), "workspace.lints": workspace.get("lints")}
    check = {name: value for name, value in lints.items() if value is not None}
    return _dumped(kept | check)


def _copies(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By table: what tests depend on that is taken from elsewhere, and crates that tests are written with."""
    targets = _table(document, "target")
    holders = {"": document, "workspace.": _table(document, "workspace")}
    holders |= {f"target.{name}.": _table(targets, name) for name in targets}
    found: dict[str, dict[str, Any]] = {}
    for prefix, holder in holders.items():
        for key in ("dev-dependencies", "dev_dependencies", "dependencies"):
            copies = {
                name: each
                for name, each in _table(holder, key).items()
                if isinstance(each, dict)
                and each.keys() & {"path", "git", "registry", "package"}
                and (key != "dependencies" or _CARGO_TEST_CRATES.fullmatch(name))
            }
            found |= {prefix + key: copies} if copies else {}
    return found


def _flags(entry: Any) -> dict[str, Any]:
    keys = ("test", "harness", "doctest", "bench", "required-features")
    return {key: entry[key] for key in keys if key in entry} if isinstance(entry, dict) else {}


def go_mod_part(data: bytes, conventions: Conventions) -> bytes | None:  # noqa: ARG001
    """Which modules are taken from elsewhere, and which Go. A name in quotes may be written in many ways: all count."""
    lines = [line.split("//")[0].strip() for line in data.decode("utf-8", "surrogateescape").splitlines()]
    kept = [line for line in lines if "=>" in line or line.startswith(("toolchain ", "ignore "))]
    return "\n".join(kept).encode("utf-8", "surrogateescape") if kept else None


_POM_WORD = re.compile(r"test|skip|surefire|failsafe|argline", re.IGNORECASE)
_POM_LIBRARY = re.compile(r"junit|testng|assertj|hamcrest|mockito|opentest4j", re.IGNORECASE)
_POM_PLUGIN = re.compile(
    r"surefire|failsafe|junit|jacoco|testng|checkstyle|spotbugs|pmd|enforcer|exec-|antrun", re.IGNORECASE
)


def pom_part(data: bytes, conventions: Conventions) -> bytes | None:  # noqa: ARG001
    """Whatever a name of which speaks of tests or of skipping, and the plugins that run them."""
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return data  # entities could say anything; no pom needs them
    try:
        top = ET.fromstring(data)  # noqa: S314 -- without entities there is nothing to expand
        kept = [ET.canonicalize(_text(each), strip_text=True) for each in _of_tests(top)]
    except (ET.ParseError, ValueError, LookupError, RecursionError):
        return data
    return "\n".join(kept).encode() if kept else None


def _text(element: ET.Element) -> str:
    element.tail = None
    return ET.tostring(element, encoding="unicode")


def _of_tests(top: ET.Element) -> list[ET.Element]:
    found: list[ET.Element] = []
    waiting = [top]
    while waiting:
        element = waiting.pop()
        name = str(element.tag).rpartition("}")[2]
        artifact = next((each.text or "" for each in element if str(each.tag).endswith("artifactId")), "")
        is_runner = (
            bool(_POM_PLUGIN.search(artifact)) if name == "plugin" else bool(_POM_LIBRARY.search(artifact))
        )
        if _POM_WORD.search(name) or (name in ("plugin", "dependency") and is_runner):
            found.append(element)
        else:
            waiting += reversed(element)
    return found


_WORD = re.compile(r"[^\s;&|()<>`\"'$=]+")


def _words(commands: Collection[str]) -> frozenset[str]:
    return frozenset(word for command in commands for word in _WORD.findall(command))


def _toml(data: bytes) -> dict[str, Any] | None:
    found: dict[str, Any] | None = _read(data, tomllib.loads)
    return found


def _json(data: bytes) -> Any:
    """What a file of JSON holds; None where it holds none."""
    return _read(data, json.loads)


def _read(data: bytes, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def _table(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document


def _dumped(kept: Mapping[str, Any]) -> bytes | None:
    return json.dumps(kept, sort_keys=True, default=str).encode() if kept else None


_HEADER = re.compile(r"\[([^\]]*)\]")
_RUNNER = re.compile(r"pytest|tool:pytest|aliases|nosetests|test|unittest|coverage:.*")
_TOX = re.compile(r"tox(?::.*)?|testenv.*|gh-actions.*")
_REFERENCE = re.compile(r"\{\[([^][{}\n]*)\]")
_CHECK = re.compile(r"mypy.*|flake8.*|pylint.*|pycodestyle|isort|pydocstyle|pyright")


def ini_part(data: bytes, conventions: Conventions) -> bytes | None:
    """What runners and checkers read of it."""
    kept: list[str] = []
    text = data.decode("utf-8", "surrogateescape")
    referred = {name.strip() for name in _REFERENCE.findall(text)}
    is_of_tox = conventions.calls("tox")
    for name, lines in _sections(text):
        is_runner = bool(_RUNNER.fullmatch(name)) or (
            is_of_tox and (bool(_TOX.fullmatch(name)) or name in referred)
        )
        is_plugin = name.startswith("options.entry_points") and any("pytest11" in line for line in lines)
        if is_runner or is_plugin or _CHECK.fullmatch(name):
            kept += [f"[{name}]", *lines]
    return "\n".join(kept).encode("utf-8", "surrogateescape") if kept else None


def _sections(text: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in text.removeprefix("\ufeff").splitlines():
        if header := _HEADER.match(line):
            found.append((header[1].strip(), []))
        elif line.strip() and not line.startswith(("#", ";")):
            found[-1][1].append(line.rstrip())
    return found


SECTIONS: Mapping[str, Callable[[bytes, Conventions], bytes | None]] = {
    "pyproject.toml": pyproject_part,
    "setup.cfg": ini_part,
    "tox.ini": ini_part,
    "package.json": package_json_part,
    "Cargo.toml": cargo_part,
    "go.mod": go_mod_part,
    "pom.xml": pom_part,
}
"""Readers of shared files by their names: what they hold about checks, None: nothing."""
