"""Sections of `setup.cfg` and `tox.ini`, as those who read them tell them apart.

Whatever stands at the start of a line in brackets is a header, and nothing that is indented: pytest reads an indented
header as text of the option above it, and so what follows still belongs to the section before.
"""

import re

from ringfence.check.freeze.model import Guard, Kind
from ringfence.check.freeze.targets import uses_tool

_HEADER = re.compile(r"\[([^\]]*)\]")
_RUNNER = re.compile(r"pytest|tool:pytest|aliases|nosetests|test|unittest|coverage:.*")
_TOX = re.compile(r"tox(?::.*)?|testenv.*|gh-actions.*")
_REFERENCE = re.compile(r"\{\[([^][{}\n]*)\]")
_CHECK = re.compile(r"mypy.*|flake8.*|pylint.*|pycodestyle|isort|pydocstyle|pyright")


def ini_part(data: bytes, guard: Guard) -> tuple[Kind, bytes] | None:
    """What runners and checkers read of it."""
    kept: list[str] = []
    kind: Kind = "check_config"
    text = data.decode("utf-8", "surrogateescape")
    referred = {name.strip() for name in _REFERENCE.findall(text)}
    is_of_tox = uses_tool(guard.commands, "tox")
    for name, lines in _sections(text):
        is_runner = bool(_RUNNER.fullmatch(name)) or (
            is_of_tox and (bool(_TOX.fullmatch(name)) or name in referred)
        )
        is_plugin = name.startswith("options.entry_points") and any("pytest11" in line for line in lines)
        if is_runner or is_plugin:
            kind = "runner_config"
        if is_runner or is_plugin or _CHECK.fullmatch(name):
            kept += [f"[{name}]", *lines]
    return (kind, "\n".join(kept).encode("utf-8", "surrogateescape")) if kept else None


def _sections(text: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in text.removeprefix("\ufeff").splitlines():
        if header := _HEADER.match(line):
            found.append((header[1].strip(), []))
        elif line.strip() and not line.startswith(("#", ";")):
            found[-1][1].append(line.rstrip())
    return found
