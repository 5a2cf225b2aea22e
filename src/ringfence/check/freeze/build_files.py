"""Sections of `pyproject.toml`, `package.json`, `Cargo.toml`, `go.mod` and `pom.xml` that say how checks run."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from ringfence.check.freeze import names
from ringfence.check.freeze.model import Guard, Kind
from ringfence.check.freeze.targets import uses_tool, words_of

_Found = tuple[Kind, bytes] | None
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


def pyproject_part(data: bytes, guard: Guard) -> _Found:
    """Options of pytest, its plugins, and how strict linters and type checkers are."""
    document = _toml(data)
    if document is None:
        return "runner_config", data
    tools = _table(document, "tool")
    runner = {name: tools[name] for name in _RUNNER_TOOLS if name in tools}
    runner |= {
        name: tools[name]
        for name, tool in _TASK_TOOLS.items()
        if name in tools and uses_tool(guard.commands, tool)
    }
    plugins = _table(document, "project", "entry-points").get("pytest11")
    runner |= {"project.entry-points": plugins} if plugins is not None else {}
    plugins = _table(tools, "poetry", "plugins").get("pytest11")
    runner |= {"poetry.plugins": plugins} if plugins is not None else {}
    check = {name: tools[name] for name in _CHECK_TOOLS if name in tools}
    return _dumped("runner_config" if runner else "check_config", runner | check)


def package_json_part(data: bytes, guard: Guard) -> _Found:
    """Scripts that test, configuration of the runners, and which runners they are."""
    document = json_of(data)
    if not isinstance(document, dict):
        return "runner_config", data
    kept = {
        key: document[key]
        for key in document
        if key in ("jest", "vitest", "mocha", "ava", "nyc", "c8", "tap", "babel")
    }
    if scripts := _kept_scripts(_table(document, "scripts"), guard):
        kept["scripts"] = scripts
    for key in ("dependencies", "devDependencies", "peerDependencies", "overrides", "resolutions"):
        if runners := {k: v for k, v in _table(document, key).items() if names.RUNNER_PACKAGES.fullmatch(k)}:
            kept[key] = runners
    if programs := _kept_programs(document, kept.get("scripts", {}), guard):
        kept["bin"] = programs
    check = {key: document[key] for key in ("eslintConfig", "prettier") if key in document}
    return _dumped("runner_config" if kept else "check_config", kept | check)


def _kept_programs(document: Mapping[str, Any], scripts: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
    """Those that a check calls by their name: npx takes a project's own before those that are installed."""
    programs = document.get("bin")
    if isinstance(programs, str):
        programs = {str(document.get("name")).rpartition("/")[2]: programs}
    called = words_of((*guard.commands, *(str(script) for script in scripts.values())))
    return {name: program for name, program in _table({"bin": programs}, "bin").items() if name in called}


_TEST_SCRIPT = re.compile(
    r"(?:pre|post)?(?:test|lint|type-?check|check|tsc)(?:[:.-].*)?|(?:pre|post)?(?:install|prepare)"
)


def called_scripts(data: bytes, guard: Guard) -> list[str]:
    """The commands of those scripts of a package.json that a check may call."""
    document = json_of(data)
    table = _table(document, "scripts") if isinstance(document, dict) else {}
    return [str(script) for script in _kept_scripts(table, guard).values()]


def _kept_scripts(scripts: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
    """Those that a check may call, and those they call in turn."""
    words = words_of(guard.commands)
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
        words |= words_of(tuple(str(script) for script in more.values()))


def cargo_part(data: bytes, guard: Guard) -> _Found:  # noqa: ARG001 -- as all sections are called
    """Which targets are tested, by what harness; patched dependencies; lints."""
    document = _toml(data)
    if document is None:
        return "runner_config", data
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
    return _dumped("runner_config" if kept else "check_config", kept | check)


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
                and (key != "dependencies" or names.CARGO_TEST_CRATES.fullmatch(name))
            }
            found |= {prefix + key: copies} if copies else {}
    return found


def _flags(entry: Any) -> dict[str, Any]:
    keys = ("test", "harness", "doctest", "bench", "required-features")
    return {key: entry[key] for key in keys if key in entry} if isinstance(entry, dict) else {}


def go_mod_part(data: bytes, guard: Guard) -> _Found:  # noqa: ARG001
    """Which modules are taken from elsewhere, and which Go. A name in quotes may be written in many ways: all count."""
    lines = [line.split("//")[0].strip() for line in data.decode("utf-8", "surrogateescape").splitlines()]
    kept = [line for line in lines if "=>" in line or line.startswith(("toolchain ", "ignore "))]
    return ("runner_config", "\n".join(kept).encode("utf-8", "surrogateescape")) if kept else None


_POM_WORD = re.compile(r"test|skip|surefire|failsafe|argline", re.IGNORECASE)
_POM_LIBRARY = re.compile(r"junit|testng|assertj|hamcrest|mockito|opentest4j", re.IGNORECASE)
_POM_PLUGIN = re.compile(
    r"surefire|failsafe|junit|jacoco|testng|checkstyle|spotbugs|pmd|enforcer|exec-|antrun", re.IGNORECASE
)


def pom_part(data: bytes, guard: Guard) -> _Found:  # noqa: ARG001
    """Whatever a name of which speaks of tests or of skipping, and the plugins that run them."""
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return "runner_config", data  # entities could say anything; no pom needs them
    try:
        top = ET.fromstring(data)  # noqa: S314 -- without entities there is nothing to expand
        kept = [ET.canonicalize(_text(each), strip_text=True) for each in _of_tests(top)]
    except (ET.ParseError, ValueError, LookupError, RecursionError):
        return "runner_config", data
    return ("runner_config", "\n".join(kept).encode()) if kept else None


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


def _toml(data: bytes) -> dict[str, Any] | None:
    found: dict[str, Any] | None = _read(data, tomllib.loads)
    return found


def json_of(data: bytes) -> Any:
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


def _dumped(kind: Kind, kept: Mapping[str, Any]) -> _Found:
    return (kind, json.dumps(kept, sort_keys=True, default=str).encode()) if kept else None
