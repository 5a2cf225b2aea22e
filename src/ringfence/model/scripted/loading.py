"""Reads scripts from YAML or JSONL, with file, line and column in every complaint."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ringfence.errors import ConfigurationError
from ringfence.model.scripted.script import Script

_Location = tuple[int | str, ...]


def load_script(path: Path) -> Script:
    """Read the script in `path`: JSONL (a turn per line) if it ends in `.jsonl`, else YAML.

    Raises:
        ConfigurationError: It cannot be read, or is not a script; with line and column.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigurationError(f"cannot read the script: {exc.strerror or exc}", file=path) from exc
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"the script is not UTF-8: {exc.reason}", file=path) from exc
    return parse_script(text, path=path)


def parse_script(text: str, *, path: Path = Path("<script>")) -> Script:
    """Read a script from text; `path` stands in the complaints and its ending tells the format.

    Raises:
        ConfigurationError: It is not a script; with line and column.
    """
    return _from_jsonl(text, path) if path.suffix == ".jsonl" else _from_yaml(text, path)


def _from_jsonl(text: str, path: Path) -> Script:
    turns: list[Any] = []
    lines: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            turns.append(json.loads(line))
        except json.JSONDecodeError as exc:
            raise ConfigurationError(
                f"not JSON: {exc.msg}", file=path, line=number, column=exc.colno
            ) from exc
        lines.append(number)
    places = [(number, 1) for number in lines]
    return _validated({"turns": turns}, path, lines, lambda loc: _jsonl_place(loc, places))


def _jsonl_place(location: _Location, places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    index = location[1] if len(location) > 1 else 0
    return places[index] if isinstance(index, int) and index < len(places) else (1, 1)


def _from_yaml(text: str, path: Path) -> Script:
    try:
        node = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        problem = exc.problem or exc.context or "cannot be read"
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ConfigurationError(f"not YAML: {problem}", file=path, line=place[0], column=place[1]) from exc
    except (YAMLError, ValueError) as exc:  # ruamel raises plain ValueError for impossible numbers and dates
        raise ConfigurationError(f"not YAML: {exc}", file=path, line=1, column=1) from exc
    root = {"turns": node} if isinstance(node, list) else node
    if not isinstance(root, dict):
        raise ConfigurationError(
            f"{node!r} is not a script; write a list of turns, or turns: and the list",
            file=path,
            line=1,
            column=1,
        )
    turns = root.get("turns")
    count = len(turns) if isinstance(turns, list) else 0
    lines = [_yaml_place(root, ("turns", index))[0] for index in range(count)]
    return _validated(_plain(root), path, lines, lambda loc: _yaml_place(root, loc))


def _validated(data: Any, path: Path, lines: list[int], place: Any) -> Script:
    if "path" in data or "lines" in data:
        raise ConfigurationError("path and lines are not keys of a script", file=path, line=1, column=1)
    try:
        script = Script.model_validate({**data, "path": path, "lines": tuple(lines)})
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        line, column = place(first["loc"])
        raise ConfigurationError(_complaint(first), file=path, line=line, column=column) from exc
    _refuse_surrogates(script, path)
    return script


def _complaint(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{where}: no such key; see docs/reference/scripted-model.md"
    message = str(error["msg"]).removeprefix("Value error, ")
    given = error["input"]
    shown = f", got {given!r}" if not isinstance(given, dict | list) else ""
    return f"{where}: {message[:1].lower()}{message[1:]}{shown}"


def _refuse_surrogates(script: Script, path: Path) -> None:
    for index, turn in enumerate(script.turns):
        try:
            turn.model_dump_json()
        except ValueError as exc:
            line = script.lines[index] if index < len(script.lines) else 1
            raise ConfigurationError(
                "half a surrogate pair is not text", file=path, line=line, column=1
            ) from exc


def _yaml_place(root: Any, location: _Location) -> tuple[int, int]:
    """Line and column of the deepest node on the way to `location` that the file really has."""
    node, place = root, (1, 1)
    for part in location:
        positions = getattr(node, "lc", None)
        try:
            found = positions.key(part) if isinstance(node, dict) else positions.item(part)  # type: ignore[union-attr]
            node = node[part]
        except (KeyError, IndexError, TypeError, AttributeError):
            break
        place = (found[0] + 1, found[1] + 1)
    return place


def _plain(value: Any) -> Any:
    """The value without ruamel's own types."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
