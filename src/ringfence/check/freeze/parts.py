"""The part of a file that says how checks run: all of it, a section, or nothing.

Only that part is frozen, so that an implementor may add a dependency to `pyproject.toml` but no option of pytest. A file
that cannot be read as what its name says counts whole.
"""

import re
from collections.abc import Callable

from ringfence.check.freeze import names
from ringfence.check.freeze.build_files import (
    cargo_part,
    go_mod_part,
    package_json_part,
    pom_part,
    pyproject_part,
)
from ringfence.check.freeze.ini import ini_part
from ringfence.check.freeze.model import MOST_BYTES, Guard, Kind, Runner
from ringfence.check.freeze.targets import (
    JUSTFILES,
    MAKEFILES,
    is_named_by,
    justfile_part,
    makefile_part,
    uses_tool,
)
from ringfence.check.inline_tests import inline_tests
from ringfence.frozen import frozen


@frozen
class Part:
    """What of a file is frozen."""

    kind: Kind
    data: bytes
    is_whole: bool = True


_Section = Callable[[bytes, Guard], tuple[Kind, bytes] | None]


def part_of(path: str, data: bytes, guard: Guard) -> Part | None:
    """What of a file an implementor must leave alone; None: nothing."""
    name = path.rpartition("/")[2]
    if kind := _whole_kind(path, name, guard):
        return Part(kind, data)
    section = _section_for(name, guard)
    if section is None:
        return None
    if len(data) > MOST_BYTES:
        return Part("runner_config", data, is_whole=False)
    try:
        found = section(data, guard)
    except RecursionError:
        found = "runner_config", data
    return Part(found[0], found[1], is_whole=False) if found else None


def may_hold_part(path: str, guard: Guard) -> bool:
    """Whether `part_of` looks into a file of that name: only then its bytes are needed."""
    name = path.rpartition("/")[2]
    return _whole_kind(path, name, guard) is not None or _section_for(name, guard) is not None


def _whole_kind(path: str, name: str, guard: Guard) -> Kind | None:
    if (
        names.EVERYWHERE.fullmatch(name)
        or (path not in guard.to_build and (path in guard.scripts or is_named_by(path, guard.commands)))
        or _is_runner_config(path, name, guard)
    ):
        return "runner_config"
    if guard.is_test(path):
        return "test"
    return "check_config" if names.CHECK_FILES.fullmatch(name) else None


def _is_runner_config(path: str, name: str, guard: Guard) -> bool:
    runners = guard.runners or names.WHOLE_RUNNER_FILES
    if any(
        runner in names.WHOLE_RUNNER_FILES and names.WHOLE_RUNNER_FILES[runner].fullmatch(name)
        for runner in runners
    ):
        return True
    if any(
        runner in names.WHOLE_RUNNER_PATHS and names.WHOLE_RUNNER_PATHS[runner].fullmatch(path)
        for runner in runners
    ):
        return True
    if path == "tasks.py" and uses_tool(guard.commands, "inv", "invoke"):  # elsewhere it is the product's
        return True
    return any(
        pattern.fullmatch(name) and uses_tool(guard.commands, *tools)
        for pattern, tools in _TASK_FILES.items()
    )


_TASK_FILES = {
    re.compile(r"[Tt]askfile(?:\.dist)?\.ya?ml"): ("task",),
    re.compile(r"tox\.toml"): ("tox",),
    re.compile(r"invoke\.(?:ya?ml|json|py)"): ("inv", "invoke"),
    re.compile(r"dodo\.py"): ("doit",),
    re.compile(r"hatch\.toml"): ("hatch",),
    re.compile(r"uv\.toml"): ("uv",),
    re.compile(r"poe_tasks\.(?:toml|ya?ml|json)"): ("poe",),
    re.compile(r"\.?mise(?:\.[\w-]+)*\.toml"): ("mise",),
    re.compile(r"turbo\.jsonc?"): ("turbo",),
    re.compile(r"nx\.json"): ("nx",),
    re.compile(r"[rR]akefile(?:\.rb)?"): ("rake",),
}


def _section_for(name: str, guard: Guard) -> _Section | None:
    fixed: dict[str, tuple[tuple[Runner, ...], _Section]] = {
        "pyproject.toml": ((), pyproject_part),
        "setup.cfg": ((), ini_part),
        "tox.ini": ((), ini_part),
        "setup.py": (("pytest", "unittest"), _mentions(rb"pytest11|test_suite|cmdclass")),
        "package.json": (("node",), package_json_part),
        "Cargo.toml": (("cargo",), cargo_part),
        "go.mod": (("go",), go_mod_part),
        "pom.xml": (("maven",), pom_part),
    }
    if name in fixed:
        runners, section = fixed[name]
        return section if not runners or guard.uses(*runners) else None
    patterns: list[tuple[re.Pattern[str], bool, _Section]] = [
        (names.ENVIRONMENT_FILES, True, _environment_part),
        (names.VITE_FILES, guard.uses("node"), _mentions(rb"\btest\b|vitest")),
        (MAKEFILES, uses_tool(guard.commands, "make", "gmake"), makefile_part),
        (JUSTFILES, uses_tool(guard.commands, "just"), justfile_part),
        (re.compile(r".*\.rs"), guard.uses("cargo"), _inline_part),
    ]
    return next(
        (section for pattern, is_used, section in patterns if is_used and pattern.fullmatch(name)), None
    )


def _mentions(pattern: bytes) -> _Section:
    """Such a file is a program: if it speaks of tests at all, all of it counts."""

    def section(data: bytes, guard: Guard) -> tuple[Kind, bytes] | None:  # noqa: ARG001 -- as all sections are called
        return ("runner_config", data) if re.search(pattern, data) else None

    return section


def _environment_part(data: bytes, guard: Guard) -> tuple[Kind, bytes] | None:  # noqa: ARG001
    lines = data.decode("utf-8", "surrogateescape").splitlines()
    kept = [line.strip() for line in lines if names.ENVIRONMENT_NAMES.match(line)]
    return ("runner_config", "\n".join(kept).encode("utf-8", "surrogateescape")) if kept else None


def _inline_part(data: bytes, guard: Guard) -> tuple[Kind, bytes] | None:  # noqa: ARG001
    found = inline_tests(data.decode("utf-8", "surrogateescape"))
    return ("test", "\n".join(found).encode("utf-8", "surrogateescape")) if found else None
