"""Prints the table of keys in docs/how-to/migrate-from-herdctl.md, from the conversion itself."""

from typing import Any

from tests.fleet.herdctl.conftest import Outcome, outcome
from tests.fleet.herdctl.keys import AGENT, FLEET, Key, lay

from ringfence.errors import ConfigurationError
from ringfence.fleet.herdctl.conversion import LABELS


def rows() -> list[str]:
    """Return the table's lines, one for each key with the result of its conversion."""
    found = [_row(key, is_fleet=True) for key in FLEET] + [_row(key, is_fleet=False) for key in AGENT]
    return ["| key | becomes |", "|---|---|", *dict.fromkeys(found)]


def _row(key: Key, *, is_fleet: bool) -> str:
    values: dict[str, Any] = {}
    key.put(values)
    after = outcome(values, {}) if is_fleet else outcome({}, values)
    before = after if is_fleet and key.path.startswith("fleet.") else _before(key, is_fleet=is_fleet)
    paths = _leaves(dict(after.agents["a"])) if not is_fleet else {}
    old = _leaves(dict(before.agents["a"])) if not is_fleet else {}
    ours = [path for path, value in paths.items() if old.get(path) != value]
    ours += [f"fleet.{path}" for path in after.fleet if is_fleet and key.path == f"fleet.{path}"]
    said = [f"`{_shown(path)}`" for path in ours if not path.startswith("secrets.")]
    for name, kind, reason in sorted(after.notes):
        if f"{key.path}.".startswith(f"{name}.") or name.startswith(f"{key.path}."):
            said.append(f"{LABELS[kind]}: {reason}")
    return f"| `{_shown(key.path)}`{_kind(key)} | {'; '.join(said)} |"


def _before(key: Key, *, is_fleet: bool) -> Outcome:
    values: dict[str, Any] = {}
    for path, value in key.beside.items():
        if path != key.path:
            lay(values, path, value)
    try:
        return outcome(values, {}) if is_fleet else outcome({}, values)
    except ConfigurationError:
        return outcome({}, {})


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {
        leaf: below
        for key in value
        for leaf, below in _leaves(value[key], f"{path}.{key}".lstrip(".")).items()
    }


def _shown(path: str) -> str:
    parts = ["NAME" if part == "x" else part for part in path.split(".")]
    return ".".join(parts).replace(".0", "[]")


def _kind(key: Key) -> str:
    kind = next(
        (value for path, value in key.beside.items() if path.startswith("hooks") and path.endswith("type")),
        "",
    )
    return f" ({kind})" if kind else ""


if __name__ == "__main__":
    print("\n".join(rows()))
