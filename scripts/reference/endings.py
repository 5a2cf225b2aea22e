"""docs/reference/endings.md."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reference.markdown import code, table
from ringfence.job.state import EXIT_CODES, JobState

_TABLE = Path(__file__).resolve().parents[2] / "tests" / "endings" / "table.yaml"
_RUNTIMES = ("api", "claude-cli", "claude-sdk", "codex-cli")
_SECTION = re.compile(r"^# --- (.+)$|^- happens:", re.MULTILINE)
_HEAD = """\
# How runs end

For each event: how a run ends with each [runtime](runtimes.md), its state, its
[exit code](exit-codes.md) and part of its reason. The tests run each row of
[tests/endings/table.yaml](../../tests/endings/table.yaml) with the real programs against the
[scripted model](scripted-model.md), in the pinned versions, the newest and the oldest ones.

How a program ended is decided by what ringfence did to it (limits, signals), by its own status fields and exit
code, and by what the model gateway saw of the API's responses; by message text only where there is no code. An end
that is not recognised counts as a failure. `codex` gives up after a single response of 429, so "The API limits the
rate once" is `infrastructure` with it.
"""


def page() -> str:
    """The page."""
    text = _TABLE.read_text(encoding="utf-8")
    rows = YAML(typ="safe").load(text)
    parts, at = [_HEAD], 0
    for title, count in _sections(text):
        parts += [f"## {title}\n", table(("what happens", *_RUNTIMES), map(_row, rows[at : at + count]))]
        at += count
    return "\n".join(parts)


def _sections(text: str) -> list[tuple[str, int]]:
    """The titles of the file's sections, and how many rows each has."""
    found: list[tuple[str, int]] = []
    for match in _SECTION.finditer(text):
        if match[1] is not None:
            found.append((match[1], 0))
        else:
            found[-1] = (found[-1][0], found[-1][1] + 1)
    return found


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    happens = row["happens"].rstrip(".")
    asked = {name: value for name, value in row.get("request", {}).items() if name in ("limits", "verify")}
    said = "; ".join(f"`{name}: {_value(value)}`" for name, value in asked.items())
    ends = row["ends"]
    return (
        f"{happens} ({said})" if said else happens,
        *(_end(ends.get(name, ends["all"])) for name in _RUNTIMES),
    )


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return "{" + ", ".join(f"{name}: {each}" for name, each in value.items()) + "}"


def _end(expected: Any) -> str:
    if isinstance(expected, dict):
        return f"not applicable: {expected['na']}"
    state, reason, exit_code = (*([expected] if isinstance(expected, str) else expected), None, None)[:3]
    number = EXIT_CODES[JobState(state)].value if exit_code is None else exit_code
    return f"{code(state)} {number}" + (f": {reason}" if reason else "")
